"""Frozen facts that the layers hand to each other. No behaviour lives here.

What is made for every step or queue entry is a named tuple: a frozen dataclass costs three times
as much to make. Where even that counts, `new_tuple` makes one in half the time, without names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from servesim.content import Content, Unique
from servesim.gaps import Gaps

_UNIQUE = Unique()
new_tuple = tuple.__new__  # of a named tuple class and its fields in order

Status = Literal["finished", "rejected", "unfinished", "failed"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the workload made it.

    Attributes:
        rid: number in the workload, from 0.
        arrival_ps: intended arrival, picoseconds from the start of the run.
        prompt_tokens: prompt length.
        output_tokens: length at which the reply would end by itself (EOS). No policy sees it.
        max_tokens: cap on the reply; the reply has min(output_tokens, max_tokens) tokens.
        priority: vLLM's sense, lower is more urgent.
        content: which prefixes it shares with other requests.
        name: the trace's own id, or "".
        tenant: who sent it, or "".
    """

    rid: int
    arrival_ps: int
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    priority: int = 0
    content: Content = _UNIQUE
    name: str = ""
    tenant: str = ""


class Waiting(NamedTuple):
    """A waiting request as a queue order may see it: no engine handles, no true length.

    Attributes:
        rid: request number.
        arrived_s: arrival, seconds.
        arrival_order: how many requests reached this engine before it.
        prompt_tokens: prompt length.
        generated_tokens: tokens sampled before a preemption, 0 for a new request.
        predicted_tokens: predicted reply length; what the predictor says, not the truth.
        priority: lower is more urgent.
        tenant: who sent it.
        requeued: 0 for a new request; else the number of the preemption that put it back
            (1 for the engine's first), so that the latest victim has the largest.
    """

    rid: int
    arrived_s: float
    arrival_order: int
    prompt_tokens: int
    generated_tokens: int
    predicted_tokens: float
    priority: int
    tenant: str
    requeued: int


class Work(NamedTuple):
    """What one request does in one step.

    Attributes:
        rid: request number.
        num_tokens: tokens run through the model, drafts included.
        num_computed: tokens whose KV is in the cache before the step.
        num_drafts: of `num_tokens`, drafts to verify.
        samples: whether the step reaches the request's last known token and so samples.
    """

    rid: int
    num_tokens: int
    num_computed: int
    num_drafts: int
    samples: bool


class Admission(NamedTuple):
    """A request that left the waiting queue in this step.

    Attributes:
        rid: request number.
        cached_tokens: tokens found in the prefix cache.
        resumed: whether it comes back from a preemption.
    """

    rid: int
    cached_tokens: int
    resumed: bool


class Decodes(NamedTuple):
    """Requests that compute one token each, as a group.

    Attributes:
        seqs: how many.
        context: tokens of context of all of them, this step's included.
        longest: context of the longest.
    """

    seqs: int
    context: int
    longest: int

    def later(self, steps: int) -> "Decodes":
        """The same requests some steps on."""
        return Decodes(self.seqs, self.context + steps * self.seqs, self.longest + steps)


NO_DECODES = Decodes(0, 0, 0)


class RankedDecodes(Decodes):
    """The decodes of all data-parallel ranks together, which `ranks` has one by one."""

    ranks: tuple[Decodes, ...]

    @classmethod
    def of(cls, ranks: tuple[Decodes, ...]) -> "RankedDecodes":
        """The sums, and the longest of all."""
        seqs, contexts, longest = zip(*ranks, strict=True)
        together = cls(sum(seqs), sum(contexts), max(longest))
        together.ranks = ranks
        return together

    def later(self, steps: int) -> "RankedDecodes":
        """The same requests some steps on."""
        return self.of(tuple(r.later(steps) if r.seqs else r for r in self.ranks))


class StepPlan(NamedTuple):
    """One forward pass: what the scheduler decided, in the engine's order.

    Attributes:
        work: the batch, but for `decodes`.
        decodes: requests that just go on decoding, where the scheduler keeps them as a group.
        left_group: (rid, tokens sampled so far) of requests that were in that group until now.
        admitted: requests that left the waiting queue.
        preempted: requests that lost their blocks, in the order in which they did.
        recomputed: (rid, tokens) for work on tokens whose KV a preemption had thrown away.
        padded_to: tokens that each request counts as; 0 for its own.
        ranks: the plans of data-parallel ranks in lock-step, of which this is the sum; empty for
            an engine of one rank.
    """

    work: tuple[Work, ...]
    admitted: tuple[Admission, ...] = ()
    preempted: tuple[int, ...] = ()
    recomputed: tuple[tuple[int, int], ...] = ()
    decodes: Decodes = NO_DECODES
    left_group: tuple[tuple[int, int], ...] = ()
    padded_to: int = 0
    ranks: tuple["StepPlan", ...] = ()

    @property
    def num_seqs(self) -> int:
        """Requests of the whole batch."""
        return len(self.work) + self.decodes.seqs

    @property
    def num_tokens(self) -> int:
        """Tokens of the whole batch."""
        tokens = self.decodes.seqs
        for work in self.work:
            tokens += work.num_tokens
        return tokens

    def padded(self) -> "StepPlan":
        """The plan that takes the same time without padding."""
        if not self.padded_to:
            return self
        work = tuple(work._replace(num_tokens=self.padded_to) for work in self.work)
        return self._replace(work=work, padded_to=0)

    def by_rank(self) -> "tuple[StepPlan, ...]":
        """What each data-parallel rank does."""
        if not self.ranks and isinstance(self.decodes, RankedDecodes):
            return tuple(StepPlan((), decodes=decodes) for decodes in self.decodes.ranks)
        return self.ranks or (self,)


class Emission(NamedTuple):
    """Tokens that one request streamed at the end of one step."""

    rid: int
    num_tokens: int


class StepOutcome(NamedTuple):
    """What a step brought: tokens by request, and which requests ended with it.

    Attributes:
        emitted: by request of the plan's `work`; each of its `decodes` streamed one token, but for
            those that are told `apart`.
        finished: requests that ended.
        decoded: (rid, tokens of the whole reply) of those of them that were among `decodes`.
        apart: how many of the plan's `decodes` streamed nothing or stand in `emitted` instead.
    """

    emitted: tuple[Emission, ...]
    finished: tuple[int, ...]
    decoded: tuple[tuple[int, int], ...] = ()
    apart: int = 0


class StepTime(NamedTuple):
    """Duration of a step.

    Attributes:
        duration_ps: picoseconds, rounded once, here.
        outside: names of the axes on which the step lies outside the fitted range.
    """

    duration_ps: int
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step as it happened; a row of steps.parquet.

    `kv_slots_unused` are the token slots of held blocks in which no token's KV is.
    """

    start_ps: int
    duration_ps: int
    num_seqs: int
    num_prefill_seqs: int
    prefill_tokens: int
    decode_tokens: int
    num_waiting: int
    num_preempted: int
    kv_blocks_used: int
    kv_slots_unused: int


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it went; a row of requests.parquet. Times are picoseconds, or None.

    `arrival_ps` is when the client sent it, in a closed loop too; `queued_ps` and `scheduled_ps`
    are the engine's; the tokens' times are the client's, `front_end.output_s` after the engine's.
    """

    rid: int
    name: str
    tenant: str
    priority: int
    status: Status
    reason: str
    prompt_tokens: int
    output_tokens: int
    requested_tokens: int
    arrival_ps: int
    sent_ps: int
    queued_ps: int | None
    scheduled_ps: int | None
    first_token_ps: int | None
    last_token_ps: int | None
    cached_tokens: int
    recomputed_tokens: int
    draft_tokens: int
    accepted_tokens: int
    preemptions: int
    rank: int | None = 0


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Sums over the steps of a run; times are picoseconds.

    Attributes:
        steps: steps run.
        busy_ps: their total duration.
        tokens: tokens through the model.
        seqs: requests in the batches, summed over steps.
        seq_ps: requests in the batch times step duration.
        block_ps: KV blocks held times step duration.
        max_blocks: most KV blocks held.
        max_seqs: largest batch.
        outside_any: steps outside the cost model's fitted range on some axis.
        outside_ps: their total duration.
        outside: steps outside it, by axis.
        skipped_steps: steps that were not looked at one by one. This and the next one tell how
            the run was carried out, not what happened in it: they do not count in comparisons.
        decisions: how often the engine was asked what to do.
    """

    steps: int
    busy_ps: int
    tokens: int
    seqs: int
    seq_ps: int
    block_ps: int
    max_blocks: int
    max_seqs: int
    outside_any: int
    outside_ps: int
    outside: Mapping[str, int]
    skipped_steps: int = field(default=0, compare=False)
    decisions: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """Prefix-cache statistics as the engine counts them, tokens."""

    queries: int
    hits: int


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What happened in one run; all that a metric may look at.

    Attributes:
        requests: one record per request of the load, by number.
        itl_ps: gaps between the tokens of a request as streamed.
        totals: sums over steps.
        steps: a record per step, where they were kept.
        prefix_stats: prefix-cache totals.
        kv_blocks: blocks that requests can hold.
        end_ps: end of the last step, or of the run where it was cut.
        block_size: tokens per block.
        self_limiting: whether slow service slowed arrivals down, so that nothing says whether
            the replica kept up.
    """

    requests: tuple[RequestRecord, ...]
    itl_ps: Gaps
    totals: StepTotals
    steps: tuple[StepRecord, ...]
    prefix_stats: PrefixStats
    kv_blocks: int
    end_ps: int
    block_size: int
    self_limiting: bool = False
