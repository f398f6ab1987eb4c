"""A load drawn from laws: an arrival process, two laws of lengths, shared prefixes, priorities.

Each has its own random stream: another rate stretches the same arrivals and leaves the lengths
alone, another law of replies leaves the prompts alone, and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from servesim import checks, seeds
from servesim.content import Content, SharedPrefix, Unique
from servesim.errors import SettingError
from servesim.records import Request
from servesim.units import seconds_to_ps
from servesim.workload import priorities, rate
from servesim.workload.arrivals import Arrivals
from servesim.workload.base import Load
from servesim.workload.lengths import Lengths, RepliesByPrompt
from servesim.workload.prefixes import NO_GROUP, PrefixGroups

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Requests from an open-loop arrival process.

    Attributes:
        num_requests: how many.
        rate_rps: mean arrival rate, requests per second; inf sends all at time 0.
        arrival: shape of the arrival process.
        prompt: law of prompt lengths, a shared prefix included.
        output: law of reply lengths, by themselves or given the prompt's length.
        prefix: shared prefixes, or null. A prompt drawn shorter than its prefix and one token
            is made that long, which is counted and noted.
        priorities: {priority: share}, or null for 0 throughout. Lower is more urgent.
        max_tokens: the cap every request sends along, or null: each sends its own reply's
            length, as a benchmark that ignores EOS does.
        even_ranks: draw lengths at evenly spaced ranks in random order, so that those of the
            sample have the law's own mean and spread; else independently.
    """

    num_requests: int
    rate_rps: float
    arrival: Arrivals
    prompt: Lengths
    output: Lengths | RepliesByPrompt
    prefix: PrefixGroups | None = None
    priorities: Mapping[int, float] | None = field(default=None, hash=False)
    max_tokens: int | None = None
    even_ranks: bool = False

    def __post_init__(self) -> None:
        checks.whole("num_requests", self.num_requests, at_least=1)
        rate.check(self.rate_rps)
        _check_part("arrival", self.arrival, isinstance(self.arrival, Arrivals))
        _check_part("prompt", self.prompt, isinstance(self.prompt, Lengths))
        _check_part("output", self.output, isinstance(self.output, Lengths | RepliesByPrompt))
        _check_part("prefix", self.prefix, isinstance(self.prefix, PrefixGroups | None))
        object.__setattr__(self, "priorities", priorities.checked_shares(self.priorities))
        if self.max_tokens is not None:
            checks.whole("max_tokens", self.max_tokens, at_least=1)
        checks.flag("even_ranks", self.even_ranks)

    def load(self, seed: int) -> Load:
        """Draw the requests."""
        n = self.num_requests
        times = self.arrival.times(n, seeds.stream(seed, "workload.arrivals")) / self.rate_rps
        prompts, contents, num_raised = self._prompts(seed)
        outputs = self._outputs(seed, prompts)
        caps = outputs if self.max_tokens is None else np.full(n, self.max_tokens)
        columns = zip(
            times.tolist(),
            prompts.tolist(),
            outputs.tolist(),
            caps.tolist(),
            priorities.draw(self.priorities, n, seed),
            contents,
            strict=True,
        )
        requests = tuple(
            Request(rid, seconds_to_ps(time_s), prompt, output, cap, priority, content)
            for rid, (time_s, prompt, output, cap, priority, content) in enumerate(columns)
        )
        return self._described(requests, num_raised)

    def _prompts(self, seed: int) -> tuple[Ints, list[Content], int]:
        """Lengths, contents, and how many prompts were lengthened to hold their prefix."""
        u = self._ranks(seeds.stream(seed, "workload.prompt_tokens"))
        drawn = self.prompt.at(u)
        if self.prefix is None:
            return drawn, [Unique()] * self.num_requests, 0
        rng = seeds.stream(seed, "workload.prefix")
        groups = self.prefix.groups(self.num_requests, rng)
        shared = self.prefix.prefix_tokens
        prompts = np.where(groups == NO_GROUP, drawn, np.maximum(drawn, shared + 1))
        # One object per group, not per request; index NO_GROUP = −1 is the last.
        known = [*(SharedPrefix(g, shared) for g in range(self.prefix.num_groups)), Unique()]
        return prompts, [known[g] for g in groups.tolist()], int((prompts > drawn).sum())

    def _outputs(self, seed: int, prompts: Ints) -> Ints:
        u = self._ranks(seeds.stream(seed, "workload.output_tokens"))
        if isinstance(self.output, RepliesByPrompt):
            return self.output.at_given(u, prompts)
        return self.output.at(u)

    def _ranks(self, rng: np.random.Generator) -> Floats:
        """A number in [0, 1) for each request."""
        n = self.num_requests
        return (rng.permutation(n) + 0.5) / n if self.even_ranks else rng.random(n)

    def _described(self, requests: tuple[Request, ...], num_raised: int) -> Load:
        notes, counts = [], {}
        if num_raised:
            counts["prompts_lengthened_to_prefix"] = num_raised
            notes.append(f"{num_raised} prompts were lengthened to their prefix and one token")
        num_capped = sum(r.output_tokens > r.max_tokens for r in requests)
        if num_capped:
            counts["replies_capped"] = num_capped
            notes.append(f"{num_capped} replies are cut at max_tokens={self.max_tokens}")
        return Load(requests, tuple(notes), counts)


def _check_part(setting: str, value: object, fits: bool) -> None:
    if not fits:
        reason = (
            f"is no {setting} law of servesim.workload (is its _target_ set, and the right one?)"
        )
        raise SettingError(setting, value, reason)
