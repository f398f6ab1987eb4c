"""The seam for admission control: what a front end may refuse before it reaches the engine."""

from typing import NamedTuple, Protocol

from servesim.records import Request


class EngineLoad(NamedTuple):
    """What the front end can see of its engine when a request arrives.

    Attributes:
        num_waiting: requests in the waiting queue.
        num_running: admitted requests.
        kv_blocks: blocks that requests can hold.
        kv_blocks_used: blocks held.
    """

    num_waiting: int
    num_running: int
    kv_blocks: int
    kv_blocks_used: int


class Admission(Protocol):
    """Which requests are refused at once."""

    def refuse(self, request: Request, load: EngineLoad) -> str | None:
        """Why the request is refused, in words for its record, or None to let it in.

        Args:
            request: what arrives; its `output_tokens` are not to be looked at.
            load: the engine as it is.
        """


def everyone() -> None:
    """Nobody is refused."""
