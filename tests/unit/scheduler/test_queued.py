"""What engines of whole batches share, on one that admits one prompt a step and has no memory."""

from paged_stepping import setup
from serving import LinearTimer, request, serve

from servesim.records import Admission, Decodes, Emission, StepOutcome, StepPlan, Work
from servesim.scheduler.queued import QueuedEngine


class Flock(QueuedEngine):
    """A prompt beside all decodes while there are seats; the prompt's first token waits a step."""

    kv_blocks = kv_blocks_used = 1

    def __init__(self, seats=2, stepwise=False, max_len=32):
        super().__init__(setup(9, max_len=max_len), stepwise)
        self.seats = seats
        self.freed = []

    def _plan(self, now_ps):
        admitted = []
        work = [Work(s.request.rid, 1, s.known - 1, 0, True) for s in self._running]
        if self._waiting.entries and len(self._running) < self.seats:
            state = self._waiting.pop()
            rid = state.request.rid
            self._running.append(state)
            admitted.append(Admission(rid, 0, False))
            work.append(Work(rid, state.known, 0, 0, False))
        for state in self._running:
            state.computed = state.known
        return StepPlan(tuple(work), tuple(admitted))

    @property
    def kv_slots_unused(self):
        return 1000 - sum(state.computed for state in self._running)

    def _free(self, state):
        self.freed.append(state.request.rid)

    def _settled(self):
        return len(self._running) >= self.seats

    def _steps_that_fit(self, limit):
        return limit

    def reject_reason(self, request):
        return None


def step(engine):
    plan = engine.schedule(0)
    return plan, engine.update(plan, {})


def started(*outputs, **engine):
    """Requests 0, 1, … with prompts of 4, 5, … tokens, past their first two tokens or fewer."""
    flock = Flock(**engine)
    for rid, output in enumerate(outputs):
        flock.add(request(rid, prompt=4 + rid, output=output))
    return flock


def test_an_update_hands_out_tokens_and_frees_who_has_ended():
    engine = started(1, 3)
    plan, outcome = step(engine)
    assert [work.rid for work in plan.work] == [0]
    assert outcome == StepOutcome((), ())
    _, outcome = step(engine)
    assert outcome == StepOutcome((Emission(0, 1),), (0,))
    assert engine.freed == [0]
    assert engine.running == (1,)
    assert engine.load() == (0, 1)


def test_steps_are_steady_when_everyone_who_runs_has_had_a_token():
    engine = started(5, 9)
    steady = []
    for _ in range(3):
        step(engine)
        steady.append(engine.steady_steps())
    # after the third step request 0 has three tokens to go, request 1 eight
    assert steady == [0, 0, 3]
    assert engine.next_decodes() == Decodes(seqs=2, context=(4 + 2) + (5 + 1), longest=6)


def test_a_run_does_what_its_steps_would_have_done():
    engine, twin = started(5, 9), started(5, 9)
    for _ in range(3):
        step(engine)
        step(twin)
    assert engine.advance(2) == [0, 0]
    assert engine.decoding() == ((0, 4), (1, 3))
    assert engine.end_run() == StepOutcome((), ())
    assert engine.advance(1) == [0]
    assert engine.end_run() == StepOutcome((), (0,), ((0, 5),))
    assert engine.freed == [0]
    for _ in range(3):
        step(twin)
    assert engine.running == twin.running == (1,)
    assert engine.next_decodes() == twin.next_decodes()


def test_the_step_behind_a_run_says_what_the_run_streamed():
    engine = started(9, 9)
    for _ in range(3):
        step(engine)
    assert engine.decoding() == ()
    engine.advance(4)
    plan, _ = step(engine)
    assert plan.left_group == ((0, 6), (1, 5))
    assert step(engine)[0].left_group == ()


def test_a_queue_that_may_move_ends_the_steady_steps():
    engine = started(9, 9)
    for _ in range(3):
        step(engine)
    engine.add(request(2, output=2))
    assert engine.steady_steps() == 7  # no seat is free
    engine.seats = 3
    assert engine.steady_steps() == 0


def test_a_stepwise_engine_has_no_steady_steps():
    engine = started(9, 9, stepwise=True)
    for _ in range(3):
        step(engine)
    assert engine.steady_steps() == 0


def test_the_longest_context_ends_a_reply():
    engine = started(9, max_len=6)
    assert [step(engine)[1].finished for _ in range(3)] == [(), (), (0,)]


def test_an_engine_that_says_nothing_of_its_memory_is_stepped():
    class Plain(Flock):
        _settled = QueuedEngine._settled
        _steps_that_fit = QueuedEngine._steps_that_fit

    engine = Plain()
    engine.add(request(0, output=9))
    step(engine)
    step(engine)
    assert engine.steady_steps() == 0


def test_skipping_equals_stepping_bit_for_bit():
    load = [request(rid, rid * 33 * 10**9, 3 + rid, 5 + 7 * rid) for rid in range(6)]
    skipped, stepped = (
        serve(load, Flock(2, stepwise, 99), LinearTimer(), keep_steps=True)
        for stepwise in (False, True)
    )
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped.totals == stepped.totals
    assert skipped.itl_ps == stepped.itl_ps
    assert stepped.totals.skipped_steps == 0
    assert skipped.totals.skipped_steps > 60
