"""Turns what happens in a run into records."""

from collections import Counter
from collections.abc import Sequence

from servesim.cost.durations import Durations, Progression
from servesim.engine.step_log import StepLog
from servesim.engine.step_records import run_records, step_record
from servesim.engine.under_way import Run, Step
from servesim.errors import LivelockError
from servesim.gaps import Gaps
from servesim.records import (
    Request,
    RequestRecord,
    StepOutcome,
    StepPlan,
    StepRecord,
    StepTotals,
)
from servesim.scheduler.fast_lane import Track
from servesim.units import ps_to_seconds

# beyond what any engine does between two tokens: each preemption loses at least a block
_MOST_PREEMPTIONS_WITHOUT_A_TOKEN = 10_000


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
        self.rows, self.taken = self._log.rows, self._log.taken
        self._gaps: Counter[int] = Counter()  # of requests that did more than go on decoding
        self.live: dict[int, Track] = {}
        self.done: list[Track] = []
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
        return len(self.done)

    def gaps(self) -> Gaps:
        """Gaps between streamed tokens so far."""
        return self._log.gaps(self._gaps)

    def queued(self, request: Request, now_ps: int) -> None:
        """The engine took the request in."""
        self.live[request.rid] = Track(request, now_ps)

    def rejected(self, request: Request, reason: str) -> None:
        """The engine's front end refused it."""
        track = Track(request, None)
        track.status, track.reason = "rejected", reason
        self.done.append(track)

    def planned(self, plan: StepPlan, start_ps: int) -> None:
        """A step begins: who was admitted or preempted."""
        live = self.live
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
            self.recomputed(rid, tokens)

    def recomputed(self, rid: int, tokens: int) -> None:
        """So many tokens are computed again after a preemption."""
        self.live[rid].recomputed += tokens

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
            track = self.live[rid]
            track.tokens = count
            track.last_ps = self.last_end_ps

    def stepped(self, step: Step, outcome: StepOutcome, now_ps: int) -> None:
        """A step has ended: tokens stream, requests finish."""
        plan, (duration_ps, outside) = step.plan, step.time
        tokens = decoding = plan.decodes.seqs
        for _, num_tokens, _, _, _ in plan.work:
            tokens += num_tokens
        decodes, seqs = decoding - outcome.apart, decoding + len(plan.work)
        self._log.add_step(duration_ps, decodes, seqs, tokens, step.blocks_used)
        if outside:
            self._log.add_outside(outside, 1, duration_ps)
        if decoding:
            self._in_vain = 0
        self.last_end_ps = now_ps
        if self.keeps_steps:
            self.steps.append(step_record(step))
        for rid, tokens in outcome.emitted:
            self.emitted(rid, tokens, now_ps)
        if outcome.finished:
            self.ended(outcome)

    def emitted(self, rid: int, num_tokens: int, now_ps: int) -> None:
        """Tokens stream of a request that did more than go on decoding."""
        self._in_vain = 0
        track = self.live[rid]
        if track.last_ps is None:
            track.first_ps = now_ps
        else:
            self._gaps[now_ps - track.last_ps] += 1
        track.last_ps = now_ps
        track.tokens += num_tokens

    def ran(
        self, durations: Durations, seqs: int, blocks: int, taken: Sequence[int], now_ps: int
    ) -> None:
        """A run of steps has ended: blocks held before it, and taken by each step."""
        self.last_end_ps = now_ps
        self._in_vain = 0
        log, steps = self._log, len(taken)
        if type(durations) is Progression:
            log.add_run(durations.first_ps, durations.increment_ps, seqs, blocks, taken)
        else:
            begin = 0
            for first_ps, increment_ps, count in durations.progressions(steps):
                part = taken[begin : begin + count]
                log.add_run(first_ps, increment_ps, seqs, blocks, part)
                begin += count
                blocks += sum(part)
        log.num_skipped += steps - 1
        if durations.outside:
            log.add_outside(durations.outside, steps, durations.total(steps))

    def keep_run(self, run: Run, taken: Sequence[int]) -> None:
        """The steps of a run that has ended, one by one, where they are asked for."""
        if self.keeps_steps:
            self.steps.extend(run_records(run, len(taken), taken, self._block_size))

    def ended(self, outcome: StepOutcome) -> None:
        """Requests have ended with the step or the run that is over now."""
        live = self.live
        for rid, tokens in outcome.decoded:
            track = live[rid]
            track.tokens = tokens
            track.last_ps = self.last_end_ps
        for rid in outcome.finished:
            self.finished(rid)

    def outside(self, axes: tuple[str, ...], steps: int, duration_ps: int) -> None:
        """The last `steps` steps, so long together, lie outside the fitted range on these axes."""
        self._log.add_outside(axes, steps, duration_ps)

    def drove(self, steps: int, skipped: int, end_ps: int, streamed: bool) -> None:
        """So many steps were noted in `rows`."""
        self._log.num_steps += steps
        self._log.num_skipped += skipped
        self.last_end_ps = end_ps
        if streamed:
            self._in_vain = 0

    def decoded(self, rid: int, tokens: int, now_ps: int) -> None:
        """A request that just went on decoding has ended, with so many tokens in all."""
        track = self.live.pop(rid)
        track.tokens = tokens
        track.last_ps = now_ps
        track.status = "finished"
        self.done.append(track)

    def finished(self, rid: int) -> None:
        """A request has ended whose tokens have been told."""
        track = self.live.pop(rid)
        track.status = "finished"
        self.done.append(track)

    def records(
        self, not_arrived: tuple[Request, ...] = (), output_ps: int = 0
    ) -> tuple[RequestRecord, ...]:
        """A record per request of the load, by number, the unfinished ones too.

        Args:
            not_arrived: requests that have not reached the engine.
            output_ps: from the end of a step until the client has its tokens.
        """
        never = [Track(request, None) for request in not_arrived]
        for tracks, reason in ((self.live.values(), "run ended"), (never, "not arrived")):
            for track in tracks:
                track.reason = reason
        tracks = [*self.done, *self.live.values(), *never]
        tracks.sort(key=lambda track: track.request.rid)
        return tuple(_record(track, output_ps) for track in tracks)


def _record(track: Track, output_ps: int) -> RequestRecord:
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
