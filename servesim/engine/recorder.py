"""Turns what happens in a run into records."""

from collections import Counter

from servesim.records import (
    Request,
    RequestRecord,
    Status,
    StepOutcome,
    StepPlan,
    StepRecord,
    StepTime,
    StepTotals,
)


class _Totals:
    """Running sums of a run's steps."""

    def __init__(self) -> None:
        self.steps = self.busy_ps = self.tokens = self.seqs = 0
        self.seq_ps = self.block_ps = self.max_blocks = self.max_seqs = 0
        self.outside_any = 0
        self.outside: Counter[str] = Counter()

    def add(self, plan: StepPlan, time: StepTime, blocks_used: int) -> None:
        """Count one step."""
        duration, seqs = time.duration_ps, len(plan.work)
        self.steps += 1
        self.busy_ps += duration
        self.tokens += plan.num_tokens
        self.seqs += seqs
        self.seq_ps += seqs * duration
        self.block_ps += blocks_used * duration
        self.max_blocks = max(self.max_blocks, blocks_used)
        self.max_seqs = max(self.max_seqs, seqs)
        if time.outside:
            self.outside_any += 1
            self.outside.update(time.outside)

    def freeze(self) -> StepTotals:
        """The sums so far."""
        return StepTotals(**{**vars(self), "outside": dict(self.outside)})


class _Track:
    """One request under way."""

    __slots__ = (
        "accepted",
        "cached",
        "drafts",
        "first_ps",
        "last_ps",
        "preemptions",
        "queued_ps",
        "recomputed",
        "request",
        "scheduled_ps",
        "tokens",
    )

    def __init__(self, request: Request, queued_ps: int | None) -> None:
        self.request = request
        self.queued_ps = queued_ps
        self.scheduled_ps: int | None = None
        self.first_ps: int | None = None
        self.last_ps: int | None = None
        self.tokens = self.cached = self.recomputed = 0
        self.drafts = self.accepted = self.preemptions = 0


class Recorder:
    """Collects the records of one run.

    Attributes:
        itl_ps: gaps between the tokens of one request as streamed, picoseconds → how often.
        steps: a record per step, where asked for.
    """

    def __init__(self, keep_steps: bool) -> None:
        self._totals = _Totals()
        self.itl_ps: Counter[int] = Counter()
        self.steps: list[StepRecord] = []
        self._keep_steps = keep_steps
        self._live: dict[int, _Track] = {}
        self._done: list[RequestRecord] = []

    @property
    def num_steps(self) -> int:
        """Steps so far."""
        return self._totals.steps

    @property
    def totals(self) -> StepTotals:
        """Sums over the steps so far."""
        return self._totals.freeze()

    @property
    def num_done(self) -> int:
        """Requests that have ended, rejected ones included."""
        return len(self._done)

    def queued(self, request: Request, now_ps: int) -> None:
        """The engine took the request in."""
        self._live[request.rid] = _Track(request, now_ps)

    def rejected(self, request: Request, reason: str) -> None:
        """The engine's front end refused it."""
        self._done.append(_record(_Track(request, None), "rejected", reason))

    def planned(
        self, plan: StepPlan, start_ps: int, time: StepTime, waiting: int, blocks_used: int
    ) -> None:
        """A step begins: who was admitted or preempted, and what the step is."""
        live = self._live
        for rid in plan.preempted:
            live[rid].preemptions += 1
        for rid, cached_tokens, resumed in plan.admitted:
            if not resumed:
                live[rid].scheduled_ps = start_ps
                live[rid].cached = cached_tokens
        for rid, tokens in plan.recomputed:
            live[rid].recomputed += tokens
        self._totals.add(plan, time, blocks_used)
        if self._keep_steps:
            self.steps.append(_step_record(plan, start_ps, time, waiting, blocks_used))

    def updated(self, outcome: StepOutcome, now_ps: int) -> None:
        """The step has ended: tokens stream, requests finish."""
        live, itl = self._live, self.itl_ps
        for rid, tokens in outcome.emitted:
            track = live[rid]
            if track.last_ps is None:
                track.first_ps = now_ps
            else:
                itl[now_ps - track.last_ps] += 1
            track.last_ps = now_ps
            track.tokens += tokens
        for rid in outcome.finished:
            self._done.append(_record(live.pop(rid), "finished", ""))

    def records(self, not_arrived: tuple[Request, ...] = ()) -> tuple[RequestRecord, ...]:
        """A record per request of the load, by number, the unfinished ones too."""
        open_ones = [_record(t, "unfinished", "run ended") for t in self._live.values()]
        never = [_record(_Track(r, None), "unfinished", "not arrived") for r in not_arrived]
        return tuple(sorted([*self._done, *open_ones, *never], key=lambda record: record.rid))


def _step_record(
    plan: StepPlan, start_ps: int, time: StepTime, waiting: int, blocks_used: int
) -> StepRecord:
    prefills = [w for w in plan.work if w.num_tokens > 1 + w.num_drafts]
    prefill_tokens = sum(w.num_tokens for w in prefills)
    return StepRecord(
        start_ps=start_ps,
        duration_ps=time.duration_ps,
        num_seqs=len(plan.work),
        num_prefill_seqs=len(prefills),
        prefill_tokens=prefill_tokens,
        decode_tokens=plan.num_tokens - prefill_tokens,
        num_waiting=waiting,
        num_preempted=len(plan.preempted),
        kv_blocks_used=blocks_used,
    )


def _record(track: _Track, status: Status, reason: str) -> RequestRecord:
    request = track.request
    return RequestRecord(
        rid=request.rid,
        name=request.name,
        tenant=request.tenant,
        priority=request.priority,
        status=status,
        reason=reason,
        prompt_tokens=request.prompt_tokens,
        output_tokens=track.tokens,
        requested_tokens=min(request.output_tokens, request.max_tokens),
        arrival_ps=request.arrival_ps,
        sent_ps=request.arrival_ps,
        queued_ps=track.queued_ps,
        scheduled_ps=track.scheduled_ps,
        first_token_ps=track.first_ps,
        last_token_ps=track.last_ps,
        cached_tokens=track.cached,
        recomputed_tokens=track.recomputed,
        draft_tokens=track.drafts,
        accepted_tokens=track.accepted,
        preemptions=track.preemptions,
    )
