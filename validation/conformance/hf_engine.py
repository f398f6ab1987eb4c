"""The scheduler of an installed transformers, stepped without a model.

What runs is transformers' own `ContinuousBatchProcessor` with its scheduler, cache, offloading
manager and input preparation, on a CPU. Only the forward pass is left out: the sampled tokens are
those of the script. The cache is sized by the settings; the machine's memory is not asked.
"""

import queue
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LogitsProcessorList
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import cache as cache_module
from transformers.generation.continuous_batching import continuous_api as api
from transformers.generation.continuous_batching.cb_logits_processors import (
    ContinuousBatchingLogitsProcessorList,
)
from transformers.generation.continuous_batching.distributed import DistributedHelper
from transformers.generation.continuous_batching.initialization import (
    resolve_continuous_batching_config,
)
from transformers.generation.continuous_batching.requests import RequestState
from transformers.generation.continuous_batching.scheduler import SCHEDULER_MAPPING

from validation.conformance.hf_trace import EOS_TOKEN, Config, Row, Scripted

_CPU = torch.device("cpu")
_MEMORY_BYTES = 1 << 40
_MAX_STEPS = 20_000


class _Processor(api.ContinuousBatchProcessor):  # type: ignore[misc]  # untyped
    def __del__(self) -> None:
        """Without the full garbage collection of the original."""


class _Cache(cache_module.PagedAttentionCache):  # type: ignore[misc]  # untyped
    """Notes who loses pages: only victims are freed without keeping what is cached."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.preempted: list[int] = []

    def free_blocks(self, request_id: str, no_cache: bool = False) -> None:
        if no_cache:
            self.preempted.append(int(request_id))
        super().free_blocks(request_id, no_cache)


def _ample_memory() -> tuple[torch.device, int, int, int]:
    return _CPU, _MEMORY_BYTES, 0, 0


def _processor(config: Config) -> _Processor:
    # one layer with 128 bytes of K and V per token: a sector is a block is a page
    model = LlamaConfig(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        vocab_size=16,
    )
    model._attn_implementation = "flash_attention_2"  # needs no mask; attention never runs
    settings = ContinuousBatchingConfig(
        page_size=config.page_size,
        num_blocks=config.num_pages,
        max_batch_tokens=config.max_batch_tokens,
        max_requests_per_batch=config.max_requests_per_batch,
        allow_block_sharing=config.allow_block_sharing,
        scheduler_type=config.scheduler_type,
        safety_margin=config.safety_margin,
        use_async_batching=False,
        use_cuda_graph=False,
        seed=0,
    )
    settings = resolve_continuous_batching_config(model, settings, None, False, _CPU)
    # a CPU has no kernel that reads by block table, so the engine has just turned the path off
    settings.max_blocks_per_request = config.max_blocks_per_request
    cache_module.get_device_and_memory_breakdown = _ample_memory
    helper = DistributedHelper(None, None)
    cache = _Cache(model, settings, _CPU, helper)
    scheduler = SCHEDULER_MAPPING[config.scheduler_type](
        cache, settings.safety_margin, settings.max_requests_per_batch
    )
    return _Processor(
        cache=cache,
        config=model,
        generation_config=GenerationConfig(),
        continuous_batching_config=settings,
        logit_processor=ContinuousBatchingLogitsProcessorList(LogitsProcessorList()),
        input_queue=queue.Queue(),
        cancel_queue=queue.Queue(),
        output_router=api.OutputRouter(),
        background_thread_status=api.BackgroundThreadStatus(),
        model_device=_CPU,
        model_dtype=torch.float16,
        scheduler=scheduler,
        distributed_helper=helper,
    )


class Engine:
    """One run of the real engine."""

    def __init__(self, config: Config, requests: Sequence[Scripted]) -> None:
        self._processor = _processor(config)
        self._requests = requests
        self._tokens = [request.tokens(rid) for rid, request in enumerate(requests)]
        self._num_added = 0

    def run(self) -> tuple[Row, ...]:
        """All steps until everyone has ended."""
        rows: list[Row] = []
        step = 0
        while len(rows) < _MAX_STEPS:
            scheduler = self._processor.scheduler
            if not scheduler.has_pending_requests():
                if self._num_added == len(self._requests):
                    return tuple(rows)
                step = max(step, self._requests[self._num_added].arrive)
            rows.append(self._step(step))
            step += 1
        raise RuntimeError(f"the engine has not come to an end in {_MAX_STEPS} steps")

    def _step(self, step: int) -> Row:
        processor, scheduler = self._processor, self._processor.scheduler
        self._add_arrived(step)
        processor.cache.preempted.clear()
        if not processor.prepare_next_batch():
            raise RuntimeError(f"the engine is stuck at step {step}")
        batch = processor.inputs_and_outputs.requests_in_batch
        work = tuple(
            (int(f.state.request_id), f.query_length, f.state.position_offset - f.query_length)
            for f in batch
        )
        active = tuple(map(int, scheduler.active_requests))
        waiting = tuple(map(int, scheduler.waiting_requests_order))
        free, cached = self._pages()
        self._sample(batch)
        processor.update_batch()
        free_after, cached_after = self._pages()
        finished = set(active) - set(map(int, scheduler.active_requests))
        return Row(
            step,
            work,
            tuple(processor.cache.preempted),
            active,
            waiting,
            free,
            cached,
            tuple(sorted(finished)),
            free_after,
            cached_after,
        )

    def _add_arrived(self, step: int) -> None:
        while self._num_added < len(self._requests):
            rid = self._num_added
            request = self._requests[rid]
            if request.arrive > step:
                return
            self._num_added += 1
            self._processor.input_queue.put(
                RequestState(
                    request_id=str(rid),
                    initial_tokens=self._tokens[rid][: request.prompt],
                    max_new_tokens=request.max_tokens,
                    eos_token_id=EOS_TOKEN,
                )
            )

    def _sample(self, batch: Sequence[Any]) -> None:
        """Write the script's tokens where the forward pass would."""
        outputs = self._processor.inputs_and_outputs.output_ids
        position = 0
        for future in batch:
            if future.has_new_token:
                state = future.state
                known = len(state.initial_tokens) + len(state.generated_tokens)
                outputs[0, position] = self._tokens[int(state.request_id)][known]
                position += 1

    def _pages(self) -> tuple[int, int]:
        """(free, cached) pages."""
        (allocator,) = self._processor.cache.cache_allocators.values()
        pool = self._processor.cache.pool
        free = pool.num_free_sectors + pool.count_free_blocks(allocator.index)
        return free, len(allocator.ledger.cached_blocks)
