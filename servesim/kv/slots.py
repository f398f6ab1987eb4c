"""Token slots that a request takes once, for its whole life: memory before paging."""

from typing import NamedTuple, Protocol


class SlotRange(NamedTuple):
    """Slots `start` … `start + size - 1` of the cache."""

    start: int
    size: int


class Slots(Protocol):
    """Memory of `capacity` slots, of which `num_used` are taken."""

    capacity: int
    num_used: int

    def fits(self, size: int) -> bool:
        """Whether `size` slots could be taken now."""

    def take(self, size: int) -> SlotRange | None:
        """`size` free slots, or None where there are none."""

    def give_back(self, taken: SlotRange) -> None:
        """Free what `take` returned."""


class ContiguousSlots:
    """First fit: the lowest hole that is large enough, so free slots may be there in vain.

    Attributes:
        capacity: slots in all.
        num_used: slots taken.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_used = 0
        self._holes = [SlotRange(0, capacity)]  # by start; no two of them touch

    def fits(self, size: int) -> bool:
        """Whether a hole is large enough."""
        return any(hole.size >= size for hole in self._holes)

    def take(self, size: int) -> SlotRange | None:
        """The start of the lowest hole of at least `size` slots, or None without one."""
        for i, (start, free) in enumerate(self._holes):
            if free >= size:
                rest = [SlotRange(start + size, free - size)] if free > size else []
                self._holes[i : i + 1] = rest
                self.num_used += size
                return SlotRange(start, size)
        return None

    def give_back(self, taken: SlotRange) -> None:
        """Free a range; it becomes one hole with those that it touches."""
        self.num_used -= taken.size
        holes: list[SlotRange] = []
        for hole in sorted([*self._holes, taken]):
            if holes and holes[-1].start + holes[-1].size == hole.start:
                holes[-1] = SlotRange(holes[-1].start, holes[-1].size + hole.size)
            else:
                holes.append(hole)
        self._holes = holes


class PooledSlots:
    """Only their number counts, as if a request's slots could lie anywhere.

    Attributes:
        capacity: slots in all.
        num_used: slots taken.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_used = 0

    def fits(self, size: int) -> bool:
        """Whether as many are free."""
        return self.num_used + size <= self.capacity

    def take(self, size: int) -> SlotRange | None:
        """Any `size` slots, or None where fewer are free; the range's start means nothing."""
        if not self.fits(size):
            return None
        self.num_used += size
        return SlotRange(0, size)

    def give_back(self, taken: SlotRange) -> None:
        """Free as many slots."""
        self.num_used -= taken.size
