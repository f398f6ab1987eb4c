"""What one step of transformers continuous batching is decided with.

Source: transformers 5.23.0, `generation/continuous_batching/scheduler.py`.
"""

from typing import NamedTuple

from servesim.records import Admission, Waiting, Work
from servesim.scheduler.state import RequestState


class HFLimits(NamedTuple):
    """What the settings come to on a cache.

    Attributes:
        prefill_first: whether requests in mid-prefill come before decodes.
        page_size: tokens per page.
        num_pages: pages of the cache.
        max_batch_tokens: tokens per step.
        max_requests_per_batch: requests per step.
        block_table_tokens: context below which a decode needs no read index.
        safety_margin: share of the pages.
    """

    prefill_first: bool
    page_size: int
    num_pages: int
    max_batch_tokens: int
    max_requests_per_batch: int
    block_table_tokens: int
    safety_margin: float


class ToTheBack:
    """The engine's own queue: whoever is put in, new or a victim, comes last."""

    changes_with_time = False

    def __init__(self) -> None:
        self._count = 0

    def key(self, waiting: Waiting, now_s: float) -> tuple[float, ...]:
        """A larger one each time."""
        self._count += 1
        return (self._count,)


class Step:
    """What one `schedule` call has done besides choosing the batch."""

    __slots__ = ("admitted", "preempted", "recomputed")

    def __init__(self) -> None:
        self.admitted: list[Admission] = []
        self.preempted: list[int] = []
        self.recomputed: list[tuple[int, int]] = []


class Batch:
    """What one pass over the candidates has decided so far.

    Attributes:
        work: who is in.
        tokens: what is left of the token budget.
        reads: what is left of the tokens of KV that a step can read.
        requests: how many more may come in.
        by_table: whether all so far are decodes that need no read index.
        failed: whether somebody got no pages.
        starved: active ones among those, with the tokens that they asked for.
    """

    __slots__ = ("by_table", "failed", "reads", "requests", "starved", "tokens", "work")

    def __init__(self, limits: HFLimits) -> None:
        self.work: list[Work] = []
        self.tokens = limits.max_batch_tokens
        self.reads = limits.num_pages * limits.page_size
        self.requests = limits.max_requests_per_batch
        self.by_table = True
        self.failed = False
        self.starved: list[tuple[RequestState, int]] = []

    @property
    def is_full(self) -> bool:
        """Whether nobody else is tried."""
        return not self.tokens or not self.requests or (self.reads <= 0 and not self.by_table)
