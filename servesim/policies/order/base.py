"""The seam for queue orders."""

from typing import Protocol

from servesim.records import Waiting


class Order(Protocol):
    """Which waiting request is admitted next; running requests and victims are the engine's."""

    @property
    def changes_with_time(self) -> bool:
        """Whether a key may change while a request waits; then it is asked for at every step."""

    def key(self, waiting: Waiting, now_s: float) -> tuple[float, ...]:
        """Sort key; the smallest is served next. Ties go to the earlier arrival.

        Args:
            waiting: the request, as far as a policy may know it.
            now_s: simulated time in seconds; meaningful only if the order changes with time.
        """
