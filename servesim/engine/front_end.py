"""What lies between client and engine: HTTP, tokenising, detokenising."""

from dataclasses import dataclass

from servesim import checks
from servesim.units import seconds_to_ps


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Delays that the front end adds; they overlap with the engine's steps and with each other.

    A front end that saturates is not modelled: a delay does not depend on the load.

    Attributes:
        queue_s: from the client's sending to the engine's queue, seconds.
        queue_s_per_prompt_token: what each token of the prompt adds to that.
        output_s: from the end of a step to the client's receiving its tokens, or the refusal.
    """

    queue_s: float = 0.0
    queue_s_per_prompt_token: float = 0.0
    output_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("queue_s", "queue_s_per_prompt_token", "output_s"):
            checks.not_negative(name, getattr(self, name))

    @property
    def is_there(self) -> bool:
        """Whether it delays anything."""
        return bool(self.queue_s or self.queue_s_per_prompt_token or self.output_s)

    @property
    def output_ps(self) -> int:
        """From sampling to the client."""
        return seconds_to_ps(self.output_s)

    def queue_ps(self, prompt_tokens: int) -> int:
        """From the client to the engine's queue."""
        return seconds_to_ps(self.queue_s + self.queue_s_per_prompt_token * prompt_tokens)

    def describe(self) -> str:
        """The delays, for the notes of a run."""
        per_token = self.queue_s_per_prompt_token * 1e6
        more = f" + {per_token:g} µs per prompt token" if per_token else ""
        return (
            f"front end: {self.queue_s * 1e3:g} ms{more} to the queue, {self.output_s * 1e3:g} ms "
            "from a step to the client; latencies are the client's"
        )


NO_FRONT_END = FrontEnd()
