"""What lies between client and engine: HTTP, tokenising, detokenising."""

from dataclasses import dataclass, fields

from servesim import checks
from servesim.units import seconds_to_ps


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Delays that the front end adds; they overlap with the engine's steps and with each other.

    A front end that saturates is not modelled: of the load, a delay depends only on how many
    requests are sent at the same instant. An event loop takes all of these up before it is done
    with the first one.

    Attributes:
        queue_s: from the client's sending to the engine's queue, seconds.
        queue_s_per_prompt_token: what each token of the prompt adds to that.
        output_s: from the end of a step to the client's receiving its tokens, or the refusal.
        queue_s_per_request_at_once: added to `queue_s` for each further request that is sent at
            the same instant.
    """

    queue_s: float = 0.0
    queue_s_per_prompt_token: float = 0.0
    output_s: float = 0.0
    queue_s_per_request_at_once: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            checks.not_negative(field.name, getattr(self, field.name))

    @property
    def is_there(self) -> bool:
        """Whether it delays anything."""
        return any(getattr(self, field.name) for field in fields(self))

    def scaled(self, factor: float) -> "FrontEnd":
        """All delays × `factor`."""
        return FrontEnd(*(factor * getattr(self, field.name) for field in fields(self)))

    @property
    def output_ps(self) -> int:
        """From sampling to the client."""
        return seconds_to_ps(self.output_s)

    def queue_ps(self, prompt_tokens: int, at_once: int = 1) -> int:
        """From the client to the engine's queue, for one of `at_once` sent at the same instant."""
        queue_s = self.queue_s + self.queue_s_per_prompt_token * prompt_tokens
        return seconds_to_ps(queue_s + self.queue_s_per_request_at_once * (at_once - 1))

    def describe(self) -> str:
        """The delays, for the notes of a run."""
        per_token = self.queue_s_per_prompt_token * 1e6
        more = f" + {per_token:g} µs per prompt token" if per_token else ""
        if self.queue_s_per_request_at_once:
            more += f" + {self.queue_s_per_request_at_once * 1e3:g} ms per other request at once"
        return (
            f"front end: {self.queue_s * 1e3:g} ms{more} to the queue, {self.output_s * 1e3:g} ms "
            "from a step to the client; latencies are the client's"
        )


NO_FRONT_END = FrontEnd()
