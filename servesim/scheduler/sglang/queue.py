"""SGLang's waiting queue and the policies that rank it.

The queue is a list. A policy sorts it in place before each prefill batch is formed, so an order
lasts until the next sort, and ties keep theirs. Source: SGLang 0.5.23, managers/schedule_policy.py
(SchedulePolicy).
"""

from dataclasses import dataclass

from servesim.kv.radix import Node, RadixTree
from servesim.kv.radix_cache import RadixCache
from servesim.kv.token_runs import cut
from servesim.policies.order.base import Order
from servesim.scheduler.sglang.state import SGLangState
from servesim.scheduler.views import waiting_view

CACHE_AWARE = ("lpm", "dfs-weight", "hrrn")
POLICIES = ("fcfs", "lof", *CACHE_AWARE)
# lpm and hrrn leave a longer queue as it is; a refresh of cached prefixes looks no further
MAX_MATCHED = 128
REFRESH_INTERVAL = 32  # passes between two refreshes of the cached prefixes of those who wait
IN_BATCH_TOKENS = 32  # thresholds of the in-batch prefix rule, both


@dataclass(frozen=True, slots=True)
class Ranking:
    """How the queue is ranked.

    Attributes:
        schedule_policy: one of `POLICIES`.
        by_priority: sort by `Request.priority` first (fcfs and lof only).
        order: ranks instead of the engine's policy; None leaves it to that.
        refresh: whether policies that do not look into the cache refresh prefixes in it.
    """

    schedule_policy: str
    by_priority: bool
    order: Order | None
    refresh: bool


class SGLangQueue:
    """The waiting requests, in the order in which they are tried.

    Attributes:
        entries: the queue; its order is the policy's as of the last `sort`.
    """

    def __init__(self, ranking: Ranking, cache: RadixCache) -> None:
        self._ranking, self._cache = ranking, cache
        self.entries: list[SGLangState] = []
        self._num_entered = self._num_passes = 0

    def push(self, state: SGLangState, now_s: float, processed_tokens: int) -> None:
        """Add a new or a retracted request at the end."""
        self._num_entered += 1
        state.queue_entry = self._num_entered
        state.arrival_processed_tokens = processed_tokens
        if self._ranking.order is not None:
            state.key = self._ranking.order.key(waiting_view(state), now_s)
        self.entries.append(state)

    def sort(self, now_s: float, processed_tokens: int) -> None:
        """Rank the queue for one prefill batch; uses what is looked up in the cache."""
        policy, entries = self._ranking.schedule_policy, self.entries
        if self._ranking.order is not None:
            self._sort_by_order(self._ranking.order, now_s)
        elif policy in CACHE_AWARE and not (policy != "dfs-weight" and len(entries) > MAX_MATCHED):
            self._sort_by_cache(policy, processed_tokens)
            return
        elif policy == "lof":
            entries.sort(key=self._longest_output)
        elif policy == "fcfs" and self._ranking.by_priority:
            entries.sort(key=lambda state: (state.request.priority, state.queue_entry))
        self._refresh()

    def _longest_output(self, state: SGLangState) -> tuple[int, int]:
        priority = state.request.priority if self._ranking.by_priority else 0
        return priority, -state.max_new_tokens

    def _sort_by_order(self, order: Order, now_s: float) -> None:
        if order.changes_with_time:
            for state in self.entries:
                state.key = order.key(waiting_view(state), now_s)
        self.entries.sort(key=lambda s: (s.key, s.request.arrival_ps, s.request.rid))

    def _sort_by_cache(self, policy: str, processed_tokens: int) -> None:
        nodes, postponed = self._look_up()
        if policy == "dfs-weight":
            order = self._cache.tree.depth_first(nodes)
            self.entries[:] = [self.entries[position] for position in order]
        elif policy == "lpm":
            self.entries.sort(key=lambda s: (1, 0) if s in postponed else (0, -s.matched))
        else:
            self.entries.sort(
                key=lambda s: (
                    *((2, 0.0) if s in postponed else _response_ratio(s, processed_tokens)),
                    s.request.rid,
                )
            )

    def _look_up(self) -> tuple[list[Node], set[SGLangState]]:
        """The cached node of each, and who waits for an earlier one to compute a shared prefix."""
        nodes: list[Node] = []
        postponed: set[SGLangState] = set()
        ahead = RadixTree()
        for state in self.entries:
            matched, node = self._cache.match(state.row, state.known)
            nodes.append(node)
            state.matched = min(matched, state.known - 1)
            if matched <= IN_BATCH_TOKENS:
                known = cut(state.row.runs, state.known)[0]
                if ahead.match(known).num_tokens >= IN_BATCH_TOKENS:
                    postponed.add(state)
                else:
                    ahead.insert(known, state.known)
        return nodes, postponed

    def _refresh(self) -> None:
        """Use the cached prefixes of those who wait, the head's last."""
        if not self.entries or not self._ranking.refresh:
            return
        if self._num_passes % REFRESH_INTERVAL == 0:
            for state in reversed(self.entries[:MAX_MATCHED]):
                self._cache.match(state.row, state.known)
        self._num_passes += 1


def _response_ratio(state: SGLangState, processed_tokens: int) -> tuple[int, float]:
    """Sort key of the highest response ratio; a prompt that is cached whole comes first."""
    uncached = max(0, state.request.prompt_tokens - state.matched)
    if not uncached:
        return 0, 0.0
    return 1, -(max(0, processed_tokens - state.arrival_processed_tokens) / uncached)
