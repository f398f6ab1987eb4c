"""vLLM V1 scheduler: a step, and the loop over waiting requests.

Source of every rule: vLLM `v1/core/sched/scheduler.py` (`schedule`); what differs between releases
is in `switches`. There is no prefill phase and no decode phase: each request has a gap between
tokens known and tokens computed, and each step closes as much of it as the budgets allow, running
requests first, in order of admission.
"""

from servesim.kv.manager import Need
from servesim.kv.table import NO_HITS, Hits
from servesim.records import Admission, StepPlan, Work
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_running import Step, VllmV1Running
from servesim.units import ps_to_seconds

# set aside in a queue that is served first, a request comes before all victims
_OWN_QUEUE = 2**40


class VllmV1Scheduler(VllmV1Running):
    """The scheduler of one engine in one run."""

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step: running requests, then, unless one was preempted, waiting ones."""
        step = Step(self._max_tokens, self._threshold())
        self._schedule_running(step, now_ps)
        if not step.preempted and self._waiting.entries:
            self._schedule_waiting(step, now_ps)
        recomputed = self._advance(step)
        work = tuple(step.work.values())
        return StepPlan(work, tuple(step.admitted), tuple(step.preempted), recomputed)

    def _threshold(self) -> int:
        """Most tokens per request in this step, 0 for no limit."""
        threshold = self._settings.long_prefill_token_threshold
        if threshold and self._switches.lone_request_ignores_threshold:
            alone = self.num_running + len(self._waiting.entries) <= 1
            return 0 if alone else threshold
        return threshold

    def _schedule_waiting(self, step: Step, now_ps: int) -> None:
        waiting = self._waiting
        if self.num_running < self._max_seqs:
            waiting.refresh(ps_to_seconds(now_ps))
        ran_some = bool(step.work)
        passed_over: list[RequestState] = []
        while waiting.entries and step.budget > 0 and self.num_running < self._max_seqs:
            state = waiting.head()
            if self._must_wait(state):
                passed_over.append(waiting.pop())
                continue
            need, drafts = self._need(state, step, ran_some)
            if need.new_tokens > step.budget:  # with drafts, or in one piece
                if drafts or self._switches.long_head_without_chunking == "stop":
                    break
                passed_over.append(waiting.pop())
                continue
            if not self._kv.admit(state.table, need):
                break  # head-of-line: nobody overtakes it, and nobody is preempted for it
            waiting.pop()
            n, cached = need.new_tokens, self._cached(need.hits) + need.uncovered_tokens
            samples = cached + n >= state.known + state.placeholders
            work = Work(state.request.rid, n, cached, min(drafts, n - 1), samples)
            self._admit(step, state, work)
        if passed_over:
            self._set_aside(passed_over, ps_to_seconds(now_ps))

    def _must_wait(self, state: RequestState) -> bool:
        """Whether admission passes a waiting request over for a reason of its own; none here."""
        return False

    def _set_aside(self, passed_over: list[RequestState], now_s: float) -> None:
        """Put back requests that admission passed over, given in their order in the queue."""
        rule = self._switches.set_aside
        if rule == "reversed":
            for state in passed_over:
                self._num_requeued += 1
                state.requeued = self._num_requeued
        elif rule == "own_queue":
            for state in reversed(passed_over):
                self._num_requeued += 1
                state.requeued = _OWN_QUEUE + self._num_requeued
        for state in passed_over:
            self._waiting.push(state, now_s)

    def _cached(self, hits: Hits) -> int:
        return hits.num_blocks * self._kv.block_size

    def _need(self, state: RequestState, step: Step, ran_some: bool) -> tuple[Need, int]:
        """What the head of the queue asks for, and how many of its tokens are dummy drafts.

        It asks for more than the budget where it cannot do with less.
        """
        settings, switches = self._settings, self._switches
        computed = state.computed
        hits = NO_HITS if computed else self._look_up(state)
        n, drafts = self._tokens_to_admit(state, computed + self._cached(hits), step, ran_some)
        need = Need(
            new_tokens=n,
            known_tokens=state.known,
            lookahead_tokens=(
                settings.num_lookahead_tokens if switches.lookahead_at_admission or computed else 0
            ),
            hits=hits,
            uncovered_tokens=computed,
            full_sequence=self._full_sequence,
            spare_blocks=self._spare_blocks if self.num_running else 0,
        )
        return need, drafts

    def _look_up(self, state: RequestState) -> Hits:
        hits = self._kv.lookup(state.table, state.known)
        if self._switches.prefix_stats_at == "lookup":
            self._count_query(state, self._cached(hits))
        return hits

    def _count_query(self, state: RequestState, hit_tokens: int, times: int = 1) -> None:
        """Prefix-cache statistics, as the engine logs them."""
        if self._caching and (self._switches.prefix_stats_of_resumed or not state.resumes):
            self._queries += state.known * times
            self._hits += hit_tokens * times

    def _tokens_to_admit(
        self, state: RequestState, cached: int, step: Step, ran_some: bool
    ) -> tuple[int, int]:
        """(tokens, dummy drafts among them) for the head of the queue."""
        n = state.known - cached
        drafts = self._padding(cached, step, ran_some) if n == 1 else 0
        n += drafts
        if drafts and n > step.budget:
            return n, drafts
        if 0 < step.threshold < n:
            n = step.threshold
        if self._settings.enable_chunked_prefill:
            n = min(n, step.budget)
        return n, drafts

    def _padding(self, cached: int, step: Step, ran_some: bool) -> int:
        """Dummy drafts that make a one-token admission into a pure decode step a verification.

        So the uniform CUDA graph can be kept.
        """
        k = self._settings.num_speculative_tokens
        uniform = not step.carries_prefill and (ran_some or cached > 0)
        pads = self._switches.pads_one_token_admission and uniform
        return k if pads and cached + k + 2 <= self._max_model_len else 0

    def _admit(self, step: Step, state: RequestState, work: Work) -> None:
        if self._switches.prefix_stats_at == "admission":
            self._count_query(state, work.num_computed)
        step.work[work.rid] = work
        step.admitted.append(Admission(work.rid, work.num_computed, state.resumes))
        step.budget -= work.num_tokens
        state.computed = work.num_computed
        state.running = True
        self._num_admitted += 1
        state.admission_order = self._num_admitted
        self._running.append(state)

    def _advance(self, step: Step) -> tuple[tuple[int, int], ...]:
        """Count the planned tokens as computed; (rid, tokens) of what is computed again."""
        recomputed = []
        for rid, work in step.work.items():
            state = self._states[rid]
            if work.num_computed < state.high_water:
                again = min(work.num_tokens, state.high_water - work.num_computed)
                recomputed.append((rid, again))
            state.computed += work.num_tokens
            state.mid_prefill = state.computed < state.known + state.placeholders
        return tuple(recomputed)
