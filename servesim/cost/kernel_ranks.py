"""Kernel tables of a rank whose routed experts are split over data-parallel ranks.

vLLM's default exchange gathers the tokens of all ranks before the experts and scatters the sums
behind them (`allgather_reducescatter`); each rank computes its own experts for all tokens. It has a
share of the (token, expert) pairs, and so takes as long as if its share of all tokens reached its
share of the experts, all experts loaded alike.

The exchange is as long as its busiest link, which carries all tokens but those of one rank, the
one with the fewest. Its table is of ranks with as many tokens each.

Where the largest batch of all ranks fits into a CUDA graph, all ranks run the graph of that size;
where it does not, none runs a graph (vLLM 0.20 v1/worker/dp_utils.py).
"""

from copy import copy

from servesim.cost.fit_range import FitRange
from servesim.cost.kernel_tables import Tables
from servesim.cost.kernel_timer import Host, KernelTimer
from servesim.deployment import Deployment
from servesim.records import StepPlan

_MOST_KEPT = 4096  # timers for other ranks' tokens; beyond, they are made anew


class RankTimer(KernelTimer):
    """Step times of one rank; `beside` says what the others do, without which they do nothing."""

    def __init__(
        self,
        tables: Tables,
        host: Host,
        sizes: tuple[int, ...],
        fit_range: FitRange,
        deployment: Deployment,
    ) -> None:
        super().__init__(tables, host, sizes, fit_range, deployment)
        self._ranks = deployment.dp
        self._others: tuple[int, ...] = ()
        self._beside: dict[tuple[int, ...], RankTimer] = {}

    def beside(self, tokens: tuple[int, ...]) -> "RankTimer":
        """The timer of this rank's steps while each of the others runs so many tokens."""
        known = self._beside.get(tokens)
        if known is None:
            if len(self._beside) >= _MOST_KEPT:
                self._beside.clear()
            known = self._beside[tokens] = copy(self)
            known._others, known._tokens_ps, known._of_decodes = tokens, {}, {}
        return known

    def parts_us(self, plan: StepPlan) -> dict[str, float]:
        """As of one rank, and `exchange` beside `moe`."""
        exchange_us = self._exchange_us(plan.num_tokens)
        parts = super().parts_us(plan)
        return {**parts, "moe": parts["moe"] - exchange_us, "exchange": exchange_us}

    def _dense_us(self, tokens: int) -> float:
        return super()._dense_us(self._padded(tokens))

    def _all_reduce_us(self, tokens: int) -> float:
        return super()._all_reduce_us(self._padded(tokens))

    def _moe_us(self, tokens: int) -> float:
        table, everywhere, ranks = self._tables.moe, sum(self._ran(tokens)), self._ranks
        if table is None:
            return 0.0
        us = table.at(everywhere / ranks, self._experts_of(everywhere) / ranks)
        return us + self._exchange_us(tokens)

    def _exchange_us(self, tokens: int) -> float:
        ranks, ran = self._ranks, self._ran(tokens)
        over_link = sum(ran) - min(ran)
        return self._tables.exchange[ranks].at(over_link * ranks / (ranks - 1))

    def _exposed_ps(self, tokens: int) -> int:
        return super()._exposed_ps(max((tokens, *self._others)))

    def _launched_ps(self, tokens: int) -> int:
        return super()._launched_ps(max((tokens, *self._others)))

    def _padded(self, tokens: int) -> int:
        """Tokens that this rank's kernels run."""
        return self._ran(tokens)[0]

    def _ran(self, tokens: int) -> list[int]:
        """Tokens that each rank's kernels run, this one's first."""
        running = (tokens, *self._others)
        if max(running) <= self._largest:
            return [self._captured(max(running))] * self._ranks
        return [self._captured(own) for own in running]
