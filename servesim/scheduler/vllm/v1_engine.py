"""vLLM V1: who waits, who runs, which blocks there are; its subclasses make the steps."""

from typing import TYPE_CHECKING

from servesim.kv.block_pool import BlockPool
from servesim.kv.manager import KVManager, Pool
from servesim.policies.order.priority import Priority
from servesim.records import PrefixStats, Request
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.counts import BlockCounts, QueueCounts
from servesim.scheduler.rejections import beyond_context
from servesim.scheduler.state import RequestState
from servesim.scheduler.steps_only import StepsOnly
from servesim.scheduler.waiting import WaitingQueue
from servesim.units import ps_to_seconds

if TYPE_CHECKING:
    from servesim.scheduler.vllm.v1 import VllmV1


class VllmV1Engine(QueueCounts, BlockCounts, StepsOnly):
    """The requests and blocks of one engine in one run."""

    def __init__(self, settings: "VllmV1", setup: EngineSetup, max_tokens: int, max_seqs: int):
        cache = setup.cache
        self._settings = settings
        self._switches = switches = settings.switches_in_force()
        self._max_tokens, self._max_seqs = max_tokens, max_seqs
        self._max_model_len = setup.max_model_len
        self._pool = self._make_pool(cache.num_gpu_blocks, switches.unkeyed_to_head)
        self._kv = KVManager(
            self._pool,
            cache.block_size,
            setup.max_model_len,
            cache.enable_prefix_caching,
            drop_last_hit=settings.eagle_block_drop,
        )
        self._spare_blocks = int(settings.watermark * cache.num_gpu_blocks)
        self._full_sequence = switches.full_sequence_gate and settings.scheduler_reserve_full_isl
        # vLLM has two policies of its own; any other order runs over its "fcfs" rules
        self._priority_victims = isinstance(setup.order, Priority)
        self._victim_policy = setup.victim
        self._waiting = WaitingQueue(setup.order)
        self._running: list[RequestState] = []
        self._states: dict[int, RequestState] = {}
        self._num_added = self._num_admitted = self._num_requeued = 0
        self._caching = cache.enable_prefix_caching
        self._queries = self._hits = 0

    def _make_pool(self, num_gpu_blocks: int, unkeyed_to_head: bool) -> Pool:
        return BlockPool(num_gpu_blocks, unkeyed_to_head)

    @property
    def num_speculative_tokens(self) -> int:
        """Drafts per verification that it expects to be proposed to it; 0 for none."""
        return self._settings.num_speculative_tokens

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._kv.block_size

    @property
    def prefix_stats(self) -> PrefixStats:
        """Tokens looked up and found, counted when and for whom the release counts them."""
        return PrefixStats(self._queries, self._hits)

    def free_order(self) -> list[int] | None:
        """Free block ids in the order in which they would be allocated, where they have names."""
        pool = self._pool
        return pool.free_order() if isinstance(pool, BlockPool) else None

    def load(self) -> tuple[int, int]:
        """(requests waiting, KV blocks held)."""
        pool = self._pool
        return len(self._waiting.entries), pool.num_usable - pool.num_free

    def reject_reason(self, request: Request) -> str | None:
        """What vLLM's API server answers with an error, and what could never run to its end."""
        if too_long := beyond_context(request, self._max_model_len):
            return too_long
        # The last sampled token gets no KV. The last verification's drafts get slots all the same,
        # as do those of a step that is planned before it is known that they were accepted.
        drafts = self._settings.num_speculative_tokens * self.pipeline_depth
        extra = drafts + self._settings.num_lookahead_tokens
        most = request.prompt_tokens + request.max_tokens - 1 + extra
        slots = self._kv.pool.num_usable * self._kv.block_size
        if min(most, self._max_model_len) > slots:
            words = f" + {extra} draft slots" if extra else ""
            return f"prompt + max_tokens - 1{words} = {most} > {slots} tokens of KV cache"
        return None

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; True, as the next plan may change with it."""
        table = self._kv.table(request.rid, request.content)
        state = RequestState(request, table, self._num_added, predicted_tokens)
        self._num_added += 1
        self._states[request.rid] = state
        self._waiting.push(state, ps_to_seconds(request.arrival_ps))
        return True

    def abort(self, rid: int) -> bool:
        """Give a request up, waiting or running; False if it is not there (any more).

        All releases alike (`finish_requests`): it leaves its queue and its blocks are free at
        once, even where a step in flight still writes to them; what that step brings for it is
        dropped.
        """
        state = self._states.get(rid)
        if state is None:
            return False
        running = state.running
        self._end(state)
        if running:
            self._drop_ended()
        return True

    def _end(self, state: RequestState) -> None:
        """A request has ended; one that ran leaves the list with `_drop_ended`."""
        self._kv.release(state.table)
        del self._states[state.request.rid]
        if not state.running:
            self._waiting.remove(state)

    def _drop_ended(self) -> None:
        states = self._states
        self._running = [s for s in self._running if s.request.rid in states]
