"""What a measured engine was asked to do: lengths of prompts and replies, and when they came."""

import math
from dataclasses import dataclass
from typing import ClassVar

from servesim import checks
from servesim.errors import SettingError


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same length for every request."""

    law: ClassVar[str] = "fixed"
    tokens: int

    def __post_init__(self) -> None:
        checks.whole("tokens", self.tokens, at_least=1)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number of `low` to `high`, both included, equally often."""

    law: ClassVar[str] = "uniform"
    low: int
    high: int

    def __post_init__(self) -> None:
        checks.whole("low", self.low, at_least=1)
        checks.whole("high", self.high, at_least=1)
        if self.high < self.low:
            raise SettingError("high", self.high, f"must be low={self.low} or more")


MOST_OF_HIGH = 0.75  # a mean nearer to the greatest length is that of no log-normal law


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal lengths.

    Attributes:
        mean: of the lengths, in tokens.
        cv: coefficient of variation of the law without an upper bound.
        high: greatest length; None is no bound. Those beyond it are drawn again.
    """

    law: ClassVar[str] = "lognormal"
    mean: float
    cv: float
    high: int | None = None

    def __post_init__(self) -> None:
        checks.positive("mean", self.mean)
        checks.not_negative("cv", self.cv)
        if self.high is not None:
            checks.whole("high", self.high, at_least=1)
            if self.mean > MOST_OF_HIGH * self.high:
                reason = f"must be at most {MOST_OF_HIGH:g} of high={self.high}"
                raise SettingError("mean", self.mean, reason)


Length = Fixed | Uniform | LogNormal
LAWS: dict[str, type[Length]] = {law.law: law for law in (Fixed, Uniform, LogNormal)}


@dataclass(frozen=True, slots=True)
class Prefix:
    """A beginning that requests share: the first `tokens` of every prompt, one of `groups`.

    Requests take the groups in equal shares. `tokens` count within the prompt's length.
    """

    tokens: int
    groups: int

    def __post_init__(self) -> None:
        checks.whole("tokens", self.tokens, at_least=1)
        checks.whole("groups", self.groups, at_least=1)


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of an open-loop run: `rate_rps` for `duration_s`, then the next one begins."""

    rate_rps: float
    duration_s: float

    def __post_init__(self) -> None:
        checks.positive("rate_rps", self.rate_rps)
        checks.positive("duration_s", self.duration_s)

    @property
    def num_requests(self) -> int:
        """Sent in this stage."""
        return round(self.rate_rps * self.duration_s)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` users, each of whom sends the next request when the last reply is complete."""

    kind: ClassVar[str] = "closed_loop"
    concurrency: int
    num_requests: int
    prompt: Length
    output: Length

    def __post_init__(self) -> None:
        checks.whole("concurrency", self.concurrency, at_least=1)
        checks.whole("num_requests", self.num_requests, at_least=1)


ARRIVALS = ("constant", "poisson", "gamma")


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests that come whatever the engine does.

    Attributes:
        rate_rps: mean rate; inf sends all at once. With stages, the mean over them.
        arrival: how the gaps are spread.
        burstiness: of gamma gaps, CV = 1/√burstiness.
        num_requests: in the whole run.
        prompt: length, the shared prefix included.
        output: length.
        prefix: what prompts share, if anything.
        stages: rates one after the other, if it is not one rate.
    """

    kind: ClassVar[str] = "open_loop"
    rate_rps: float
    arrival: str
    num_requests: int
    prompt: Length
    output: Length
    burstiness: float = 1.0
    prefix: Prefix | None = None
    stages: tuple[Stage, ...] | None = None

    def __post_init__(self) -> None:
        if self.rate_rps != math.inf:
            checks.positive("rate_rps", self.rate_rps)
        checks.choice("arrival", self.arrival, ARRIVALS)
        checks.positive("burstiness", self.burstiness)
        checks.whole("num_requests", self.num_requests, at_least=1)
        if self.stages is not None:
            total = sum(stage.num_requests for stage in self.stages)
            if total != self.num_requests:
                reason = f"must be the {total} requests of its stages"
                raise SettingError("num_requests", self.num_requests, reason)


@dataclass(frozen=True, slots=True)
class Requests:
    """Recorded requests.

    `file`, beside the case, has the columns arrival_s, prompt_tokens, output_tokens and, where
    contents are known, block_ids: a JSON list with the id of every full block of `block_size`
    tokens over prompt and reply. Two requests share an id exactly when they share all tokens
    through that block.
    """

    kind: ClassVar[str] = "requests"
    file: str
    block_size: int | None = None

    def __post_init__(self) -> None:
        checks.text("file", self.file)
        if self.block_size is not None:
            checks.whole("block_size", self.block_size, at_least=1)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Conversations whose next turn waits for the reply to the last one.

    `file`, beside the case, has the columns that conf/workload/sessions.yaml describes.
    """

    kind: ClassVar[str] = "sessions"
    file: str

    def __post_init__(self) -> None:
        checks.text("file", self.file)


@dataclass(frozen=True, slots=True)
class StaticBatch:
    """One batch of `batch` equal requests, started and run to its end together."""

    kind: ClassVar[str] = "static_batch"
    batch: int
    prompt: Length
    output: Length

    def __post_init__(self) -> None:
        checks.whole("batch", self.batch, at_least=1)


@dataclass(frozen=True, slots=True)
class Configured:
    """A workload of conf/workload by name, which reads the source's own files.

    For cases that are kept in the repository, where the source's requests are not.
    """

    kind: ClassVar[str] = "configured"
    name: str
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.text("name", self.name)


Workload = ClosedLoop | OpenLoop | Requests | Sessions | StaticBatch | Configured
KINDS: dict[str, type[Workload]] = {
    kind.kind: kind for kind in (ClosedLoop, OpenLoop, Requests, Sessions, StaticBatch, Configured)
}
