"""SGLang's own scheduler, radix cache and slot allocator, stepped on a CPU with made-up replies.

The real `Scheduler` decides (`get_next_batch_to_run`, with everything below it: queue policies,
prefill budgets, retraction, allocation, the tree). Its object is made without its constructor,
which would load a model; what it reads of that is given here by hand. Taking in a step's tokens is
the few calls that the engine's result processor makes. Release 0.5.23.
"""

import importlib
import importlib.metadata
import logging
from array import array
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from servesim.errors import ServesimError
from validation.conformance.sglang_blanks import allow_missing_gpu_packages
from validation.conformance.sglang_trace import EOS_TOKEN, RELEASE, Case, Config, Row, Trace
from validation.conformance.sglang_trace import ScriptedRequest as Scripted

_MOST_STEPS = 20_000


class MissingSGLangError(ServesimError):
    """SGLang is not installed, or it is another release."""


def _module(name: str) -> Any:
    return importlib.import_module(f"sglang.srt.{name}")


def require() -> None:
    """Import SGLang and publish a configuration for it, once per process.

    Raises:
        MissingSGLangError: with what is installed instead.
    """
    try:
        found = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        raise MissingSGLangError(f"needs sglang {RELEASE}, and sglang is not installed") from None
    if found != RELEASE:
        raise MissingSGLangError(f"needs sglang {RELEASE}, and sglang {found} is installed")
    allow_missing_gpu_packages()
    _module("runtime_context").get_context().override_server_args(device="cpu").install()
    batches, allocation = _module("managers.schedule_batch"), _module("mem_cache.allocation")
    batches.SamplingBatchInfo.from_schedule_batch = staticmethod(lambda *_: _Sampling())
    # the torch path in place of a Triton kernel
    allocation.support_triton = lambda _: False
    allocation.attention_backends = lambda: ("torch_native", "torch_native")
    logging.disable(logging.CRITICAL)


class _Unset(SimpleNamespace):
    """Names that are not given are None: features that are off."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)


class _Sampling(_Unset):
    """Sampling parameters of a batch, of which nothing is asked."""

    penalizer_orchestrator = SimpleNamespace(is_required=False)

    def filter_batch(self, *_: Any) -> None:
        """Nothing to keep."""

    def merge_batch(self, other: Any) -> None:
        """Nothing to join."""


def run(case: Case) -> Trace:
    """What the real engine does with a case; call `require` first."""
    config, context = case.config, _module("runtime_context")
    bag = context.get_context().config_bag
    most = config.max_running_requests
    with ExitStack() as settings:
        settings.enter_context(context.get_parallel().override(pp_max_micro_batch_size=most))
        for name, changed in (
            ("schedule", {"schedule_conservativeness": config.schedule_conservativeness}),
            ("memory", {"radix_eviction_policy": config.radix_eviction_policy}),
        ):
            settings.enter_context(bag(name).override(**changed))
        _module("managers.schedule_policy").CLIP_MAX_NEW_TOKENS = config.clip_max_new_tokens
        return _Run(case).trace()


class _Run:
    """One case under way."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._pool, self._tree = _memory(case.config)
        self._engine = _scheduler(case.config, self._pool, self._tree)
        self._requests: dict[str, tuple[Any, Scripted]] = {}
        self._retracted: list[str] = []
        self._add = self._engine._add_request_to_queue
        self._engine._add_request_to_queue = self._queued

    def trace(self) -> Trace:
        todo = list(self._case.requests)
        rows, step = [], 0
        while todo or self._busy:
            while todo and todo[0].arrive <= step:
                self._arrive(todo.pop(0))
            if self._busy:
                rows.append(self._step(step))
            if len(rows) > _MOST_STEPS:
                raise RuntimeError(f"{self._case.name}: the engine makes no progress")
            step += 1
        allocator = self._engine.token_to_kv_pool_allocator
        free, evictable = allocator.available_size(), self._tree.evictable_size()
        return Trace(self._case, tuple(rows), free, evictable)

    @property
    def _busy(self) -> bool:
        return bool(self._requests or self._engine.result_queue)

    def _queued(self, request: Any, is_retracted: bool = False) -> None:
        if is_retracted:
            self._retracted.append(request.rid)
        self._add(request, is_retracted)

    def _arrive(self, scripted: Scripted) -> None:
        cap = _module("sampling.sampling_params").SamplingParams(max_new_tokens=scripted.max_tokens)
        cap.normalize(None)
        request = _module("managers.schedule_batch").Req(
            scripted.id,
            "",
            array("q", scripted.prompt),
            cap,
            eos_token_ids={EOS_TOKEN},
            vocab_size=self._engine.model_config.vocab_size,
            priority=-scripted.priority,  # the engine's larger is more urgent
        )
        self._engine.init_req_max_new_tokens(request)
        self._requests[scripted.id] = request, scripted
        self._engine._add_request_to_queue(request)

    def _step(self, step: int) -> Row:
        """One turn of the engine's loop, `event_loop_normal` or `event_loop_overlap`."""
        engine, self._retracted = self._engine, []
        plan = engine.get_next_batch_to_run(engine.running_batch, engine.last_batch)
        engine.running_batch, batch = plan.running_batch, plan.batch_to_run
        row = Row(
            step=step,
            batch=_batch(batch),
            retracted=tuple(self._retracted),
            waiting=tuple(request.rid for request in engine.waiting_queue),
            free=engine.token_to_kv_pool_allocator.available_size(),
            evictable=self._tree.evictable_size(),
            ratio=engine.new_token_ratio_tracker.current,
            finished=(),
        )
        if batch is not None:
            if batch.forward_mode.is_extend():
                engine.processed_tokens_counter += batch.extend_num_tokens
            engine.result_queue.append((batch.copy(), None))
        before = engine.last_batch if engine.enable_overlap else batch
        finished = self._finish(engine.result_queue.popleft()[0]) if before is not None else ()
        engine.last_batch = batch
        if not self._busy:
            engine.new_token_ratio_tracker.reset()  # as `on_idle` does
        return replace(row, finished=finished)

    def _finish(self, batch: Any) -> tuple[str, ...]:
        """Take a batch's tokens in, as the result processor does."""
        common, allocator = _module("mem_cache.common"), self._engine.token_to_kv_pool_allocator
        ended, extends = [], batch.forward_mode.is_extend()
        decoding = (batch.decoding_reqs or []) if extends else batch.reqs
        allocator.free_group_begin()
        for request in batch.reqs:
            if request.inflight_middle_chunks > 0:
                request.inflight_middle_chunks -= 1
                continue
            if request.finished() or request.is_retracted:
                continue
            reply = self._requests[request.rid][1].reply
            request.output_ids.append(reply[len(request.output_ids)])
            request.update_finish_state()
            if request.finished():
                common.release_kv_cache(request, self._tree, checkpoint=True)
                ended.append(request.rid)
                del self._requests[request.rid]
            elif request not in decoding:
                common.checkpoint_kv_cache(request, self._tree)
        allocator.free_group_end()
        return tuple(ended)


def _batch(batch: Any) -> tuple[tuple[str, int], ...]:
    if batch is None:
        return ()
    if not batch.forward_mode.is_extend():
        return tuple((request.rid, 1) for request in batch.reqs)
    decodes = len(batch.decoding_reqs or [])
    prefills = batch.extend_lens[: len(batch.reqs) - decodes]
    names = [request.rid for request in batch.reqs]
    return tuple(zip(names, [*prefills, *[1] * decodes], strict=True))


def _memory(config: Config) -> tuple[Any, Any]:
    """Request slots and the radix cache; no KV tensors stand behind them."""
    page, size = config.page_size, config.tokens // config.page_size * config.page_size
    pool = _module("mem_cache.memory_pool").ReqToTokenPool(
        config.max_running_requests, config.max_model_len + 8, "cpu", False
    )
    shape = (None, "cpu", SimpleNamespace(), False)
    if page == 1:
        allocator = _module("mem_cache.allocator.token").TokenToKVPoolAllocator(size, *shape)
    else:
        paged = _module("mem_cache.allocator.paged")
        allocator = paged.PagedTokenToKVPoolAllocator(size, page, *shape)
    full = _module("mem_cache.unified_cache.component_type").ComponentType.FULL
    parameters = _module("mem_cache.cache_init_params").CacheInitParams(
        disable=config.disable_radix_cache,
        req_to_token_pool=pool,
        token_to_kv_pool_allocator=allocator,
        page_size=page,
        eviction_policy=config.radix_eviction_policy,
        tree_components=(full,),
    )
    return pool, _module("mem_cache.unified_radix_cache").UnifiedRadixCache(parameters)


def _scheduler(config: Config, pool: Any, tree: Any) -> Any:
    """The scheduler without its constructor; what is not set is None."""
    module, policies = _module("managers.scheduler"), _module("managers.schedule_policy")
    ratio = _module("managers.scheduler_components.new_token_ratio_tracker").NewTokenRatioTracker
    size, by_priority = tree.token_to_kv_pool_allocator.size, config.enable_priority_scheduling
    engine = type("Bare", (module.Scheduler, _Unset), {"__init__": lambda _: None})()
    settings = {
        "req_to_token_pool": pool,
        "token_to_kv_pool_allocator": tree.token_to_kv_pool_allocator,
        "tree_cache": tree,
        "page_size": config.page_size,
        "max_running_requests": config.max_running_requests,
        "max_prefill_tokens": config.max_prefill_tokens,
        "chunked_prefill_size": max(config.chunked_prefill_size, 0) or None,
        "is_mixed_chunk": config.enable_mixed_chunk and config.chunked_prefill_size > 0,
        "enable_priority_scheduling": by_priority,
        "policy": policies.SchedulePolicy(config.schedule_policy, tree, False, by_priority, False),
        "new_token_ratio_tracker": ratio.from_config(),
        "running_batch": module.ScheduleBatch(reqs=[]),
        "waiting_queue": [],
        "result_queue": deque(),
        "enable_overlap": not config.disable_overlap_schedule,
        "enable_skip_finishing_decode": not config.disable_overlap_schedule,
        "processed_tokens_counter": 0,
        "forward_ct": 0,
        "max_prefill_bs": 0,
        "max_req_len": min(config.max_model_len, size) - 1,
        "max_total_num_tokens": size,
        "kv_shard_widening": 1,
        "prefill_decode_interval": 0,
        "_prefill_decode_interval_remaining": 0,
        "priority_scheduling_preemption_threshold": 10,
        "disaggregation_mode": module.DisaggregationMode.NULL,
        "spec_algorithm": module.SpeculativeAlgorithm.NONE,
        "model_config": _Unset(vocab_size=10**9),
        "tp_worker": SimpleNamespace(model_runner=_Unset(attn_backend=SimpleNamespace())),
        "beam_coordinator": SimpleNamespace(pending_member_rows=lambda _: 0),
        "grammar_manager": SimpleNamespace(has_waiting_grammars=lambda: False),
        "load_inquirer": SimpleNamespace(_get_num_pending_tokens=lambda **_: 0),
        "metrics_reporter": SimpleNamespace(enable_metrics=False),
        "dp_attn_adapter": SimpleNamespace(
            maybe_prepare_mlp_sync_batch=lambda batch, **_: batch,
            maybe_convert_decode_to_extend=lambda batch: batch,
        ),
        "ngram_embedding_manager": SimpleNamespace(prepare_for_forward=lambda batch, **_: batch),
        "get_prefill_adder_class": lambda: policies.PrefillAdder,
        "_prefetch_kvcache": lambda _: None,
        "_set_or_validate_priority": lambda _: True,
        "_abort_on_queued_limit": lambda _: False,
    }
    engine.__dict__.update(settings)
    return engine
