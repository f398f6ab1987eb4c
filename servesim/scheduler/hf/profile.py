"""Continuous batching of transformers 5.23.0: the engine's settings under its own names.

Source: transformers 5.23.0, `generation/configuration_utils.py` (`ContinuousBatchingConfig`) and
`generation/continuous_batching/initialization.py`. What other releases do differently is not
modelled. `allow_block_sharing` is `kv.enable_prefix_caching`, and `num_blocks` follows from the
tokens that the `kv` settings leave room for.

Not modelled: asynchronous batching (`use_async_batching`, which the engine turns on by itself with
flash attention and CUDA graphs), copies of KV to CPU memory, forks (`num_return_sequences` above
1), sliding-window layers, and the order in which `generate_batch` sorts a list of prompts.
"""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.hf.batch import HFLimits
from servesim.scheduler.hf.scheduler import HFScheduler
from servesim.scheduler.hf.steady import SteadyHFScheduler

_SMALLEST_PAGE = 4  # tokens; initialization.py refuses less
# FIFOScheduler and PrefillFirstScheduler in scheduler.py
_SAFETY_MARGINS = {"fifo": 0.15, "prefill_first": 0.0}


@dataclass(frozen=True, slots=True)
class HFContinuousBatching:
    """Engine settings under transformers' own names.

    Attributes:
        scheduler_type: "fifo" (decodes before requests in mid-prefill) or "prefill_first".
        page_size: tokens per page of KV; 4 or more.
        max_batch_tokens: tokens per step.
        max_requests_per_batch: requests per step; no more than `max_batch_tokens` take effect.
        max_blocks_per_request: pages up to which a decode can take the path that reads KV by
            block table; a batch of such decodes alone has no limit on the tokens it reads. 0
            where the attention has no such path (all but flash attention 2 and 3 on CUDA).
        safety_margin: share of the pages below which a step takes only decodes once it has
            one request; null takes 0.15 with "fifo" and 0 with "prefill_first".
        cpu_offload_space: GiB of CPU memory for the KV of victims; only 0 is simulated.
    """

    scheduler_type: str = "fifo"
    page_size: int = 256
    max_batch_tokens: int = 8192
    max_requests_per_batch: int = 1024
    max_blocks_per_request: int = 32
    safety_margin: float | None = None
    cpu_offload_space: float = 0.0

    def __post_init__(self) -> None:
        checks.choice("scheduler_type", self.scheduler_type, tuple(_SAFETY_MARGINS))
        checks.whole("page_size", self.page_size, at_least=_SMALLEST_PAGE)
        checks.whole("max_batch_tokens", self.max_batch_tokens, at_least=1)
        checks.whole("max_requests_per_batch", self.max_requests_per_batch, at_least=1)
        checks.whole("max_blocks_per_request", self.max_blocks_per_request)
        if self.safety_margin is not None:
            checks.fraction("safety_margin", self.safety_margin)
        checks.not_negative("cpu_offload_space", self.cpu_offload_space)
        if self.cpu_offload_space:
            raise SettingError(
                "cpu_offload_space",
                self.cpu_offload_space,
                "copies of KV to CPU memory are not simulated; nearest: 0",
            )

    @property
    def overlaps_host(self) -> bool:
        """No: asynchronous batching is not modelled."""
        return False

    def start(self, setup: EngineSetup, stepwise: bool = False) -> HFScheduler:
        """A scheduler with empty queues.

        Raises:
            SettingError: where the cache does not hold one page.
        """
        kind = HFScheduler if stepwise else SteadyHFScheduler
        return kind(self.limits(setup.cache), setup)

    def limits(self, cache: CacheSize) -> HFLimits:
        """The limits in force, defaults filled in.

        Raises:
            SettingError: where the cache does not hold one page.
        """
        tokens = (cache.num_gpu_blocks - 1) * cache.block_size
        if tokens < self.page_size:
            nearest = f"{tokens}" if tokens >= _SMALLEST_PAGE else "a larger cache"
            raise SettingError(
                "page_size",
                self.page_size,
                f"the cache holds {tokens} tokens, less than one page; nearest: {nearest}",
            )
        margin = self.safety_margin
        return HFLimits(
            prefill_first=self.scheduler_type == "prefill_first",
            page_size=self.page_size,
            num_pages=tokens // self.page_size,
            max_batch_tokens=self.max_batch_tokens,
            max_requests_per_batch=min(self.max_requests_per_batch, self.max_batch_tokens),
            block_table_tokens=self.max_blocks_per_request * self.page_size,
            safety_margin=_SAFETY_MARGINS[self.scheduler_type] if margin is None else margin,
        )

    def describe(self, setup: EngineSetup) -> str:
        """Engine, release and limits in one line."""
        limits = self.limits(setup.cache)
        sharing = "on" if setup.cache.enable_prefix_caching else "off"
        return (
            f"transformers 5.23 continuous batching, synchronous; {self.scheduler_type}, "
            f"max_batch_tokens {limits.max_batch_tokens}, "
            f"max_requests_per_batch {limits.max_requests_per_batch}, "
            f"{limits.num_pages} pages × {limits.page_size} tokens cut from the KV blocks, "
            f"max_blocks_per_request {self.max_blocks_per_request}, "
            f"safety_margin {limits.safety_margin:g}, block sharing {sharing}, "
            f"max_model_len {setup.max_model_len}"
        )
