"""The seam for victim policies."""

from typing import NamedTuple, Protocol


class Running(NamedTuple):
    """A running request as a victim policy may see it.

    Attributes:
        rid: request number.
        arrived_s: arrival, seconds.
        admission_order: number of its latest admission, so that the last admitted has the largest.
        prompt_tokens: prompt length.
        generated_tokens: tokens sampled so far.
        computed_tokens: tokens whose KV it holds.
        kv_blocks: blocks that it holds.
        predicted_tokens: predicted reply length; what the predictor says, not the truth.
        priority: lower is more urgent.
        tenant: who sent it.
        preempted: whether it has been a victim before.
    """

    rid: int
    arrived_s: float
    admission_order: int
    prompt_tokens: int
    generated_tokens: int
    computed_tokens: int
    kv_blocks: int
    predicted_tokens: float
    priority: int
    tenant: str
    preempted: bool


class Victim(Protocol):
    """Which running request is preempted when one of them cannot get a block."""

    def key(self, running: Running) -> tuple[float, ...]:
        """Sort key; the largest goes first. Ties go to the last admitted."""


def engines_own() -> None:
    """The engine's own rule."""
