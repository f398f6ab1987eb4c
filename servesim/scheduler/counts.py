"""What schedulers say of their queue, their running list and their blocks; parts of them."""

from servesim.kv.manager import KVManager
from servesim.scheduler.state import RequestState
from servesim.scheduler.waiting import WaitingQueue


class QueueCounts:
    """Of a scheduler with one waiting queue and a running list."""

    _waiting: WaitingQueue
    _running: list[RequestState]

    @property
    def num_running(self) -> int:
        """Admitted requests, those in mid-prefill included."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue, preempted ones included."""
        return len(self._waiting.entries)

    @property
    def running(self) -> tuple[int, ...]:
        """Running requests in the engine's order."""
        return tuple(state.request.rid for state in self._running)


class BlockCounts:
    """Of a scheduler whose requests hold blocks of one pool."""

    _kv: KVManager
    _running: list[RequestState]

    @property
    def kv_blocks(self) -> int:
        """Blocks that requests can hold; a null block is none of them."""
        return self._kv.pool.num_usable

    @property
    def kv_blocks_used(self) -> int:
        """Blocks held by requests."""
        return self._kv.pool.num_used

    @property
    def num_free_blocks(self) -> int:
        """Blocks that could be allocated now, cached ones included."""
        return self._kv.pool.num_free

    @property
    def kv_slots_unused(self) -> int:
        """Slots of held blocks that hold no token's KV."""
        size = self._kv.block_size
        return sum(state.table.num_blocks * size - state.computed for state in self._running)
