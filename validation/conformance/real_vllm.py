"""vLLM's own V1 scheduler, stepped on a CPU with made-up model outputs.

Only the scheduler and the block manager of the installed release run: no model, no GPU. Source of
the interfaces: v1/core/sched/{scheduler,async_scheduler}.py, v1/request.py and v1/outputs.py of
vLLM 0.11.0, 0.15.0, 0.20.0, 0.32.0 and 0.33.0.
"""

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from servesim.errors import ServesimError
from validation.conformance.real_vllm_settings import engine_settings
from validation.conformance.record import Planned
from validation.conformance.trace import EOS_TOKEN, ScriptedRequest, Trace


class NoSuchReleaseError(ServesimError):
    """vLLM is not installed, or it is another release than the one asked for."""


def require(release: str) -> None:
    """Make sure that the installed vLLM is of a release, such as "0.33".

    Raises:
        NoSuchReleaseError: with what is installed instead.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    try:
        found = importlib.import_module("vllm").__version__
    except ImportError:
        raise NoSuchReleaseError(f"needs vllm {release}, and vllm is not installed") from None
    if not found.startswith(f"{release}."):
        raise NoSuchReleaseError(f"needs vllm {release}, and vllm {found} is installed")


class RealVllm:
    """The installed release's scheduler behind the recording loop's interface.

    Call `require` first. With `asyn` it is the asynchronous scheduler. A drafter with lookahead
    slots is an EAGLE-type one with `eagle_drop` and a separate draft model without.
    """

    def __init__(self, scenario: Trace) -> None:
        self._scheduler = _scheduler(scenario.config)
        self._manager = self._scheduler.kv_cache_manager
        self._hasher = _block_hasher(scenario.config["bs"])
        self._freed: list[str] = []
        self._stats = {"queries": 0, "hits": 0}
        self._watch()

    def add(self, request: ScriptedRequest, step: int) -> None:
        """A request arrives before the step, which is its arrival time."""
        module = importlib.import_module("vllm.v1.request")
        params = importlib.import_module("vllm.sampling_params").SamplingParams(
            max_tokens=request.max_tokens
        )
        params.update_from_generation_config({}, EOS_TOKEN)
        has_eos = "eos_token_id" in _parameters(module.Request.__init__)
        self._scheduler.add_request(
            module.Request(
                request_id=request.id,
                prompt_token_ids=list(request.prompt),
                sampling_params=params,
                pooling_params=None,
                arrival_time=float(step),
                priority=request.priority,
                block_hasher=self._hasher,
                **({"eos_token_id": EOS_TOKEN} if has_eos else {}),
            )
        )

    def abort(self, request_id: str) -> None:
        """The client gives up; the scheduler passes over a request that has ended."""
        statuses = importlib.import_module("vllm.v1.request").RequestStatus
        self._scheduler.finish_requests(request_id, statuses.FINISHED_ABORTED)

    def schedule(self) -> Planned:
        """Plan the next step."""
        requests = self._scheduler.requests
        placeholders = {i: r.num_output_placeholders for i, r in requests.items()}
        self._freed.clear()
        output = self._scheduler.schedule()
        tokens = dict(output.num_scheduled_tokens)
        sampling = (
            i
            for i in tokens
            if requests[i].num_computed_tokens >= requests[i].num_tokens + placeholders[i]
        )
        drafts = {i: len(d) for i, d in output.scheduled_spec_decode_tokens.items()}
        return Planned(tokens, drafts, tuple(self._freed), tuple(sampling), output)

    def update(
        self, planned: Planned, sampled: Mapping[str, list[int]]
    ) -> tuple[dict[str, int], list[str]]:
        """Take a step's tokens; streamed tokens by request, and who ended."""
        ids = list(planned.tokens)
        outputs = importlib.import_module("vllm.v1.outputs").ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
            sampled_token_ids=[list(sampled.get(i, ())) for i in ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        by_client = self._scheduler.update_from_output(planned.handle, outputs)
        said = [output for client in by_client.values() for output in client.outputs]
        emitted = {output.request_id: len(output.new_token_ids) for output in said}
        return emitted, [o.request_id for o in said if o.finish_reason is not None]

    def propose(self, request_ids: Iterable[str], count: int) -> None:
        """Give each request that many drafts; their ids never match a sampled token."""
        ids = list(request_ids)
        drafts = importlib.import_module("vllm.v1.outputs").DraftTokenIds
        self._scheduler.update_draft_token_ids(drafts(ids, [[900] * count for _ in ids]))

    @property
    def has_unfinished(self) -> bool:
        """Whether any request has not ended."""
        return bool(self._scheduler.requests)

    @property
    def running(self) -> list[str]:
        """Running requests in the scheduler's order."""
        return [request.request_id for request in self._scheduler.running]

    @property
    def num_free_blocks(self) -> int:
        """Free blocks, cached ones included."""
        return int(self._manager.block_pool.get_num_free_blocks())

    @property
    def free_queue(self) -> list[int]:
        """Free block ids, next to be allocated first."""
        queue = self._manager.block_pool.free_block_queue
        return [block.block_id for block in queue.get_all_free_blocks()]

    @property
    def prefix_stats(self) -> dict[str, int]:
        """Queries and hits so far, in tokens, as the engine would report them."""
        self._manager.make_prefix_cache_stats()
        return dict(self._stats)

    def _watch(self) -> None:
        """Note who loses its blocks, in order, and add up the statistics that are taken."""
        free, take = self._manager.free, self._manager.make_prefix_cache_stats

        def noted_free(request: Any, *arguments: Any, **options: Any) -> Any:
            self._freed.append(request.request_id)
            return free(request, *arguments, **options)

        def noted_take() -> Any:
            stats = take()
            if stats is not None:
                self._stats["queries"] += stats.queries
                self._stats["hits"] += stats.hits
            return stats

        self._manager.free = noted_free
        self._manager.make_prefix_cache_stats = noted_take


@cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _block_hasher(block_size: int) -> Any:
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    try:
        sha256 = importlib.import_module("vllm.utils.hashing").sha256
    except ImportError:  # up to 0.11
        sha256 = importlib.import_module("vllm.utils").sha256
    utils.init_none_hash(sha256)
    return utils.get_request_block_hasher(block_size, sha256)


def _scheduler(config: Mapping[str, Any]) -> Any:
    module = "async_scheduler" if config["asyn"] else "scheduler"
    name = "AsyncScheduler" if config["asyn"] else "Scheduler"
    kind = getattr(importlib.import_module(f"vllm.v1.core.sched.{module}"), name)
    base = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    takes = _parameters(base.__init__)
    sizes = {k: config["bs"] for k in ("block_size", "hash_block_size") if k in takes}
    scheduler = kind(
        vllm_config=engine_settings(config),
        kv_cache_config=_kv_cache(config),
        structured_output_manager=_no_grammars(),
        mm_registry=SimpleNamespace(supports_multimodal_inputs=lambda _: False),
        log_stats=True,
        **sizes,
    )
    scheduler.num_lookahead_tokens = config["la"]  # 0.11 has it for EAGLE only
    return scheduler


def _no_grammars() -> Any:
    """What the scheduler asks the manager of structured outputs, which has none."""
    return SimpleNamespace(
        should_advance=lambda _: False,
        accept_tokens=lambda *_: True,
        validate_tokens=lambda _, tokens: tokens,
    )


def _kv_cache(config: Mapping[str, Any]) -> Any:
    """One full-attention group; the sizes of a block's content matter to nobody."""
    kinds = importlib.import_module("vllm.v1.kv_cache_interface")
    options = {"block_size": config["bs"], "num_kv_heads": 1, "head_size": 1}
    if "use_mla" in _parameters(kinds.FullAttentionSpec):
        options["use_mla"] = False
    dtype = importlib.import_module("torch").float32
    group = kinds.KVCacheGroupSpec(["layer"], kinds.FullAttentionSpec(dtype=dtype, **options))
    return kinds.KVCacheConfig(
        num_blocks=config["nblocks"], kv_cache_tensors=[], kv_cache_groups=[group]
    )
