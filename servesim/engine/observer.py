"""How far a run has come, for whoever shows it."""

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """A run under way: simulated time, requests ended (rejected ones included), steps."""

    now_ps: int
    requests_done: int
    steps: int


Observer = Callable[[Progress], None]
