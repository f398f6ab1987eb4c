"""Turns what happens in a run into records."""

from collections import Counter
from collections.abc import Sequence

from servesim.cost.durations import Progression
from servesim.engine.step_log import StepLog
from servesim.engine.step_records import run_records, step_record
from servesim.engine.under_way import Run, Step
from servesim.errors import LivelockError
from servesim.gaps import Gaps
from servesim.records import (
    Request,
    RequestRecord,
    Status,
    StepOutcome,
    StepPlan,
    StepRecord,
    StepTotals,
)
from servesim.units import ps_to_seconds

# beyond what any engine does between two tokens: each preemption loses at least a block
_MOST_PREEMPTIONS_WITHOUT_A_TOKEN = 10_000


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
        "reason",
        "recomputed",
        "request",
        "scheduled_ps",
        "status",
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
        self.status: Status = "unfinished"
        self.reason = ""


class Recorder:
    """Collects the records of one run.

    Requests that just go on decoding have a token at the end of every step, so of them only the
    end of the last step is kept, and what they have got is noted when they leave their group.

    Attributes:
        steps: a record per step, where asked for.
        keeps_steps: whether they are.
        last_end_ps: end of the last step.
    """

    def __init__(self, keep_steps: bool, block_size: int) -> None:
        self.steps: list[StepRecord] = []
        self.keeps_steps = keep_steps
        self._block_size = block_size
        self._log = StepLog()
        self._gaps: Counter[int] = Counter()  # of requests that did more than go on decoding
        self._live: dict[int, _Track] = {}
        self._done: list[_Track] = []
        self.last_end_ps = 0
        self._in_vain = 0  # preemptions since the last token

    @property
    def num_steps(self) -> int:
        """Steps so far."""
        return self._log.num_steps

    @property
    def totals(self) -> StepTotals:
        """Sums over the steps so far."""
        return self._log.totals()

    @property
    def num_done(self) -> int:
        """Requests that have ended, rejected ones included."""
        return len(self._done)

    def gaps(self) -> Gaps:
        """Gaps between streamed tokens so far."""
        return self._log.gaps(self._gaps)

    def queued(self, request: Request, now_ps: int) -> None:
        """The engine took the request in."""
        self._live[request.rid] = _Track(request, now_ps)

    def rejected(self, request: Request, reason: str) -> None:
        """The engine's front end refused it."""
        track = _Track(request, None)
        track.status, track.reason = "rejected", reason
        self._done.append(track)

    def planned(self, plan: StepPlan, start_ps: int) -> None:
        """A step begins: who was admitted or preempted."""
        live = self._live
        if plan.left_group:
            self.left_group(plan.left_group)
        if plan.preempted:
            self._check_progress(plan.preempted, start_ps)
        for rid in plan.preempted:
            live[rid].preemptions += 1
        for rid, cached_tokens, resumed in plan.admitted:
            if not resumed:
                track = live[rid]
                track.scheduled_ps = start_ps
                track.cached = cached_tokens
        for rid, tokens in plan.recomputed:
            live[rid].recomputed += tokens

    def _check_progress(self, preempted: tuple[int, ...], now_ps: int) -> None:
        """Real engines can preempt for ever, too; a simulation should say so and not hang."""
        self._in_vain += len(preempted)
        if self._in_vain > _MOST_PREEMPTIONS_WITHOUT_A_TOKEN:
            raise LivelockError(
                f"at {ps_to_seconds(now_ps):.3f} s requests preempt each other for ever: "
                f"{_MOST_PREEMPTIONS_WITHOUT_A_TOKEN} preemptions and no token; give the cache "
                "more blocks (kv.num_gpu_blocks), or another policies/victim"
            )

    def left_group(self, tokens: tuple[tuple[int, int], ...]) -> None:
        """Requests no longer go on decoding as a group; (rid, tokens streamed so far)."""
        for rid, count in tokens:
            track = self._live[rid]
            track.tokens = count
            track.last_ps = self.last_end_ps

    def stepped(self, step: Step, outcome: StepOutcome, now_ps: int) -> None:
        """A step has ended: tokens stream, requests finish."""
        plan, (duration_ps, outside) = step.plan, step.time
        work, decoding = plan.work, plan.decodes.seqs
        tokens = decoding
        for _, num_tokens, _, _, _ in work:
            tokens += num_tokens
        seqs = decoding + len(work)
        self._log.add_step(duration_ps, decoding - outcome.apart, seqs, tokens, step.blocks_used)
        if decoding or outcome.emitted:
            self._in_vain = 0
        if outside:
            self._log.add_outside(outside, 1, duration_ps)
        if self.keeps_steps:
            self.steps.append(step_record(step))
        live, gaps = self._live, self._gaps
        for rid, tokens in outcome.emitted:
            track = live[rid]
            if track.last_ps is None:
                track.first_ps = now_ps
            else:
                gaps[now_ps - track.last_ps] += 1
            track.last_ps = now_ps
            track.tokens += tokens
        self.last_end_ps = now_ps
        if outcome.finished:
            self.ended(outcome)

    def ran(self, run: Run, steps: int, taken: Sequence[int], now_ps: int) -> None:
        """A run of steps has ended; `taken` are the blocks each took."""
        self.last_end_ps = now_ps
        self._in_vain = 0
        durations, seqs, blocks = run.durations, run.decodes.seqs, run.blocks_used
        if type(durations) is Progression:
            self._log.add_run(durations.first_ps, durations.increment_ps, seqs, blocks, taken)
        else:
            begin = 0
            for first_ps, increment_ps, count in durations.progressions(steps):
                part = taken[begin : begin + count]
                self._log.add_run(first_ps, increment_ps, seqs, blocks, part)
                begin += count
                blocks += sum(part)
        self._log.num_skipped += steps - 1
        if durations.outside:
            self._log.add_outside(durations.outside, steps, durations.total(steps))
        if self.keeps_steps:
            self.steps.extend(run_records(run, steps, taken, self._block_size))

    def ended(self, outcome: StepOutcome) -> None:
        """Requests have ended with the step or the run that is over now."""
        live = self._live
        for rid, tokens in outcome.decoded:
            track = live[rid]
            track.tokens = tokens
            track.last_ps = self.last_end_ps
        for rid in outcome.finished:
            track = live.pop(rid)
            track.status = "finished"
            self._done.append(track)

    def records(
        self, not_arrived: tuple[Request, ...] = (), output_ps: int = 0
    ) -> tuple[RequestRecord, ...]:
        """A record per request of the load, by number, the unfinished ones too.

        Args:
            not_arrived: requests that have not reached the engine.
            output_ps: from the end of a step until the client has its tokens.
        """
        never = [_Track(request, None) for request in not_arrived]
        for tracks, reason in ((self._live.values(), "run ended"), (never, "not arrived")):
            for track in tracks:
                track.reason = reason
        tracks = [*self._done, *self._live.values(), *never]
        tracks.sort(key=lambda track: track.request.rid)
        return tuple(_record(track, output_ps) for track in tracks)


def _record(track: _Track, output_ps: int) -> RequestRecord:
    request, first_ps, last_ps = track.request, track.first_ps, track.last_ps
    return RequestRecord(
        rid=request.rid,
        name=request.name,
        tenant=request.tenant,
        priority=request.priority,
        status=track.status,
        reason=track.reason,
        prompt_tokens=request.prompt_tokens,
        output_tokens=track.tokens,
        requested_tokens=min(request.output_tokens, request.max_tokens),
        arrival_ps=request.arrival_ps,
        sent_ps=request.arrival_ps,
        queued_ps=track.queued_ps,
        scheduled_ps=track.scheduled_ps,
        first_token_ps=None if first_ps is None else first_ps + output_ps,
        last_token_ps=None if last_ps is None else last_ps + output_ps,
        cached_tokens=track.cached,
        recomputed_tokens=track.recomputed,
        draft_tokens=track.drafts,
        accepted_tokens=track.accepted,
        preemptions=track.preemptions,
    )
