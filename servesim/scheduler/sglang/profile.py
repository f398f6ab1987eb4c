"""SGLang, release 0.5.23: the engine's settings under its own names."""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.kv.radix import EVICTION_POLICIES
from servesim.kv.radix_cache import RadixCache
from servesim.policies.order.fcfs import Fcfs
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.sglang.limits import SGLangLimits
from servesim.scheduler.sglang.prefill import Limits
from servesim.scheduler.sglang.queue import CACHE_AWARE, POLICIES, Ranking, SGLangQueue
from servesim.scheduler.sglang.ratio import NewTokenRatio
from servesim.scheduler.sglang.retract import Retraction
from servesim.scheduler.sglang.scheduler import SGLangScheduler

# GPU memory below so many GiB: the server's default chunked_prefill_size
# (arg_groups/memory_hook.py, handle_gpu_memory_settings)
_CHUNKED_PREFILL_SIZES = ((20, 2048), (60, 4096), (160, 8192))
_CHUNKED_PREFILL_SIZE_BEYOND = 16384


@dataclass(frozen=True, slots=True)
class SGLang:
    """Engine settings under SGLang's own names.

    Replies are taken to end by EOS or by `max_tokens`: no request is one with `ignore_eos`, whose
    reply admission would reserve in full.
    The order of the waiting queue is `schedule_policy`'s, unless a queue order other than fcfs is
    chosen (policies/order), which then ranks instead.

    Attributes:
        chunked_prefill_size: tokens per prefill batch by which prompts are split; null takes the
            server's default for the GPU, -1 splits none.
        max_prefill_tokens: prompt tokens per prefill batch.
        max_running_requests: admitted requests; null takes the server's rule.
        schedule_policy: fcfs, lpm (longest cached prefix), dfs-weight (depth first through the
            cache), hrrn (highest response ratio) or lof (largest `max_tokens`). The first three
            after fcfs are fcfs where there is no radix cache. Equal ratios of hrrn go by request
            number (the engine: by its id, as text).
        schedule_conservativeness: the larger, the more of its `max_tokens` a running request is
            charged at admission.
        enable_mixed_chunk: let running requests decode in prefill batches.
        disable_overlap_schedule: plan a step when the one before it is over. The real server does
            so only if told to; by itself it plans a step while the one before it runs, so a reply
            that ends by EOS is computed for one step more, and what has ended holds its memory
            for as long. With false, steps in which nothing is decided are not skipped.
        enable_priority_scheduling: serve by priority, then by schedule_policy (fcfs or lof). The
            engine takes a larger number for more urgent; `Request.priority` is the other way
            round and is taken with its sign turned, so a smaller one is more urgent here, too.
            Nobody is preempted for a waiting request (`--disable-priority-preemption`).
        page_size: tokens per page of the KV cache.
        disable_radix_cache: keep nothing beyond its request.
        radix_eviction_policy: which unlocked leaf goes first: lru, lfu, fifo, filo or slru.
        clip_max_new_tokens: most reply tokens that admission expects of a request
            (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION).
    """

    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    max_running_requests: int | None = None
    schedule_policy: str = "fcfs"
    schedule_conservativeness: float = 1.0
    enable_mixed_chunk: bool = False
    disable_overlap_schedule: bool = True
    enable_priority_scheduling: bool = False
    page_size: int = 1
    disable_radix_cache: bool = False
    radix_eviction_policy: str = "lru"
    clip_max_new_tokens: int = 4096

    def __post_init__(self) -> None:
        for name in ("max_prefill_tokens", "page_size", "clip_max_new_tokens"):
            checks.whole(name, getattr(self, name), at_least=1)
        for name in (
            "enable_mixed_chunk",
            "disable_overlap_schedule",
            "enable_priority_scheduling",
            "disable_radix_cache",
        ):
            checks.flag(name, getattr(self, name))
        if self.max_running_requests is not None:
            checks.whole("max_running_requests", self.max_running_requests, at_least=1)
        checks.choice("schedule_policy", self.schedule_policy, POLICIES)
        checks.choice("radix_eviction_policy", self.radix_eviction_policy, tuple(EVICTION_POLICIES))
        checks.not_negative("schedule_conservativeness", self.schedule_conservativeness)
        self._check_chunk()
        if self.enable_priority_scheduling and self.schedule_policy in CACHE_AWARE:
            reason = "goes with schedule_policy fcfs or lof only; nearest: schedule_policy=fcfs"
            raise SettingError("enable_priority_scheduling", True, reason)

    def _check_chunk(self) -> None:
        size = self.chunked_prefill_size
        if size is None or size == -1:
            return
        checks.whole("chunked_prefill_size", size, at_least=1)
        if size % self.page_size:
            whole = max(size // self.page_size, 1) * self.page_size
            reason = f"must be a multiple of page_size={self.page_size}; nearest: {whole}"
            raise SettingError("chunked_prefill_size", size, reason)

    @property
    def overlaps_host(self) -> bool:
        """With the overlap scheduler."""
        return not self.disable_overlap_schedule

    def start(self, setup: EngineSetup, stepwise: bool = False) -> SGLangScheduler:
        """A scheduler with empty queues.

        Args:
            setup: see `EngineSetup`. Its blocks, less the null block, are cut into pages of
                `page_size`.
            stepwise: have no steady steps.

        Raises:
            SettingError: where both a schedule_policy and another queue order are asked for, or
                no page fits into the cache.
        """
        limits = self.limits(setup)
        caching = self._caches(setup)
        cache = RadixCache(limits.kv_tokens, self.page_size, caching, self.radix_eviction_policy)
        ranking = Ranking(
            schedule_policy=self._policy(setup),
            by_priority=self.enable_priority_scheduling,
            order=None if type(setup.order) is Fcfs else setup.order,
            refresh=caching and self.radix_eviction_policy == "lru",
        )
        return SGLangScheduler(
            limits,
            cache,
            SGLangQueue(ranking, cache),
            Retraction(cache, setup.victim),
            NewTokenRatio(self.schedule_conservativeness),
            stepwise,
        )

    def limits(self, setup: EngineSetup) -> SGLangLimits:
        """The limits in force."""
        self._check_order(setup)
        cache = setup.cache
        tokens = (cache.num_gpu_blocks - 1) * cache.block_size
        tokens -= tokens % self.page_size
        if tokens < 2 * self.page_size:
            reason = f"two pages do not fit into the {tokens} tokens of KV cache; nearest: 1"
            raise SettingError("page_size", self.page_size, reason)
        return SGLangLimits(
            prefill=Limits(self.max_prefill_tokens, self._chunk(setup), self.clip_max_new_tokens),
            max_running_requests=self._max_running(tokens, setup.max_model_len),
            enable_mixed_chunk=self.enable_mixed_chunk,
            disable_overlap_schedule=self.disable_overlap_schedule,
            kv_tokens=tokens,
            page_size=self.page_size,
            max_model_len=setup.max_model_len,
        )

    def describe(self, setup: EngineSetup) -> str:
        """Engine, release and limits in one line."""
        limits = self.limits(setup)
        chunk = limits.prefill.chunked_prefill_size
        overlap = "without overlap" if self.disable_overlap_schedule else "overlapped"
        cached = f"radix cache ({self.radix_eviction_policy})"
        return (
            f"SGLang scheduler 0.5.23 {overlap}; {self._ranked_by(setup)}, "
            f"chunked_prefill_size {chunk or 'off'}, max_prefill_tokens {self.max_prefill_tokens}, "
            f"max_running_requests {limits.max_running_requests}, "
            f"{cached if self._caches(setup) else 'no radix cache'}, "
            f"{limits.kv_tokens // self.page_size} pages of page_size {self.page_size}, "
            f"max_model_len {setup.max_model_len}"
        )

    def _check_order(self, setup: EngineSetup) -> None:
        if type(setup.order) is Fcfs:
            return
        order = type(setup.order).__name__
        for setting, own in (("schedule_policy", "fcfs"), ("enable_priority_scheduling", False)):
            value = getattr(self, setting)
            if value != own:
                reason = f"the queue order {order} ranks already; nearest: policies/order=fcfs"
                raise SettingError(setting, value, reason)

    def _caches(self, setup: EngineSetup) -> bool:
        return setup.cache.enable_prefix_caching and not self.disable_radix_cache

    def _policy(self, setup: EngineSetup) -> str:
        if self.schedule_policy in CACHE_AWARE and not self._caches(setup):
            return "fcfs"
        return self.schedule_policy

    def _ranked_by(self, setup: EngineSetup) -> str:
        """What ranks the queue, in words."""
        if type(setup.order) is not Fcfs:
            return f"queue order {type(setup.order).__name__}"
        first = "priority, then " if self.enable_priority_scheduling else ""
        return f"{first}schedule_policy {self._policy(setup)}"

    def _chunk(self, setup: EngineSetup) -> int | None:
        if self.chunked_prefill_size is not None:
            return None if self.chunked_prefill_size == -1 else self.chunked_prefill_size
        memory_gib = setup.gpu.memory_gib
        sizes = [size for below_gib, size in _CHUNKED_PREFILL_SIZES if memory_gib < below_gib]
        size = sizes[0] if sizes else _CHUNKED_PREFILL_SIZE_BEYOND
        return max(size - size % self.page_size, self.page_size)

    def _max_running(self, kv_tokens: int, max_model_len: int) -> int:
        """`resolve_max_num_reqs` of mem_cache/kv_cache_configurator.py."""
        most = self.max_running_requests
        if most is None:
            most = max(min(int(kv_tokens / max_model_len * 512), 4096), 2048)
        return max(min(most, kv_tokens // 2), 1)
