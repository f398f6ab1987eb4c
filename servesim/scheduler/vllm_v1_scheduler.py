"""vLLM V1 scheduler, release 0.33, synchronous: the two calls of a step.

Source of every rule: vLLM 0.33.0 `v1/core/sched/scheduler.py`. There is no prefill phase and no
decode phase: each request has a gap between tokens known and tokens computed, and each step
closes as much of it as the budgets allow, running requests first, in order of admission.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from servesim.kv.block_pool import BlockPool
from servesim.kv.manager import KVManager, Need, Pool
from servesim.policies.order.priority import Priority
from servesim.records import (
    Admission,
    Emission,
    PrefixStats,
    Request,
    StepOutcome,
    StepPlan,
    Work,
)
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.state import RequestState
from servesim.scheduler.steps_only import StepsOnly
from servesim.scheduler.waiting import WaitingQueue
from servesim.units import ps_to_seconds

if TYPE_CHECKING:
    from servesim.scheduler.vllm_v1 import VllmV1


class Step:
    """What one `schedule` call has decided so far."""

    __slots__ = ("admitted", "budget", "carries_prefill", "preempted", "threshold", "work")

    def __init__(self, budget: int, threshold: int) -> None:
        self.budget = budget
        self.threshold = threshold
        self.work: dict[int, Work] = {}  # in the engine's order
        self.admitted: list[Admission] = []
        self.preempted: list[int] = []
        self.carries_prefill = False


class VllmV1Scheduler(StepsOnly):
    """The scheduler of one engine in one run."""

    def __init__(self, settings: "VllmV1", setup: EngineSetup, max_tokens: int, max_seqs: int):
        cache = setup.cache
        self._settings = settings
        self._max_tokens, self._max_seqs = max_tokens, max_seqs
        self._max_model_len = setup.max_model_len
        self._pool = self._make_pool(cache.num_gpu_blocks)
        self._kv = KVManager(
            self._pool, cache.block_size, setup.max_model_len, cache.enable_prefix_caching
        )
        self._spare_blocks = int(settings.watermark * cache.num_gpu_blocks)
        # vLLM has two policies of its own; any other order runs over its "fcfs" rules
        self._priority_victims = isinstance(setup.order, Priority)
        self._waiting = WaitingQueue(setup.order)
        self._running: list[RequestState] = []
        self._states: dict[int, RequestState] = {}
        self._num_added = self._num_admitted = self._num_preempted = 0
        self._caching = cache.enable_prefix_caching
        self._queries = self._hits = 0

    def _make_pool(self, num_gpu_blocks: int) -> Pool:
        return BlockPool(num_gpu_blocks)

    @property
    def num_speculative_tokens(self) -> int:
        """Drafts per verification that it expects to be proposed to it; 0 for none."""
        return self._settings.num_speculative_tokens

    @property
    def num_running(self) -> int:
        """Admitted requests, those in mid-prefill included."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue, preempted ones included."""
        return len(self._waiting.entries)

    @property
    def kv_blocks(self) -> int:
        """Blocks that requests can hold; the null block is none of them."""
        return self._kv.pool.num_usable

    @property
    def kv_blocks_used(self) -> int:
        """Blocks held by requests."""
        return self._kv.pool.num_used

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._kv.block_size

    @property
    def kv_slots_unused(self) -> int:
        """Slots of held blocks that hold no token's KV."""
        size = self._kv.block_size
        return sum(s.table.num_blocks * size - s.computed for s in self._running)

    @property
    def prefix_stats(self) -> PrefixStats:
        """Tokens looked up and found at first admissions; resumed requests do not count."""
        return PrefixStats(self._queries, self._hits)

    @property
    def running(self) -> tuple[int, ...]:
        """Running requests in the engine's order."""
        return tuple(state.request.rid for state in self._running)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that could be allocated now, cached ones included."""
        return self._kv.pool.num_free

    def free_order(self) -> list[int] | None:
        """Free block ids in the order in which they would be allocated, where they have names."""
        pool = self._pool
        return pool.free_order() if isinstance(pool, BlockPool) else None

    def load(self) -> tuple[int, int]:
        """(requests waiting, KV blocks held)."""
        pool = self._pool
        return len(self._waiting.entries), pool.num_usable - pool.num_free

    def reject_reason(self, request: Request) -> str | None:
        """What vLLM's API server answers with an error, and what could never run to its end."""
        length = request.prompt_tokens + request.max_tokens
        if length > self._max_model_len:
            return f"prompt + max_tokens = {length} > max_model_len {self._max_model_len}"
        # the last sampled token gets no KV; the last verification's drafts get slots all the same
        extra = self._settings.num_speculative_tokens + self._settings.num_lookahead_tokens
        most = length - 1 + extra
        slots = self._kv.pool.num_usable * self._kv.block_size
        if min(most, self._max_model_len) > slots:
            drafts = f" + {extra} draft slots" if extra else ""
            return f"prompt + max_tokens - 1{drafts} = {most} > {slots} tokens of KV cache"
        return None

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; True, as the next plan may change with it."""
        table = self._kv.table(request.rid, request.content)
        state = RequestState(request, table, self._num_added, predicted_tokens)
        self._num_added += 1
        self._states[request.rid] = state
        self._waiting.push(state, ps_to_seconds(request.arrival_ps))
        return True

    def propose(self, drafts: Mapping[int, int]) -> None:
        """Store drafts for the next step; a request in mid-prefill takes none."""
        for rid, count in drafts.items():
            state = self._states.get(rid)
            if state is not None:
                state.drafts = 0 if state.mid_prefill else count

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step: running requests, then, unless one was preempted, waiting ones."""
        alone = self.num_running + len(self._waiting.entries) <= 1
        threshold = 0 if alone else self._settings.long_prefill_token_threshold
        step = Step(self._max_tokens, threshold)
        self._schedule_running(step, now_ps)
        if not step.preempted and self._waiting.entries:
            self._schedule_waiting(step, now_ps)
        recomputed = self._advance(step)
        work = tuple(step.work.values())
        return StepPlan(work, tuple(step.admitted), tuple(step.preempted), recomputed)

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in, stop what has ended and free its blocks at once."""
        emitted: list[Emission] = []
        finished: list[int] = []
        drafting = self._settings.num_speculative_tokens > 0
        for work in plan.work:
            if not work.samples:
                continue
            state = self._states[work.rid]
            sampled = 1
            if work.num_drafts:
                kept_drafts = accepted.get(work.rid, 0)
                sampled += kept_drafts
                state.computed -= work.num_drafts - kept_drafts
            end = min(state.stop_at, self._max_model_len)
            kept = min(sampled, end - state.known)
            state.known += kept
            emitted.append(Emission(work.rid, kept))
            if drafting:
                self._kv.register(state.table, state.computed - (sampled - kept))
            if state.known >= end:
                finished.append(work.rid)
                self._kv.release(state.table)
                del self._states[work.rid]
        if finished:
            self._running = [s for s in self._running if s.request.rid in self._states]
        return StepOutcome(tuple(emitted), tuple(finished))

    def _schedule_running(self, step: Step, now_ps: int) -> None:
        running, lookahead = self._running, self._settings.num_lookahead_tokens
        threshold, longest = step.threshold, self._max_model_len - 1
        extend = self._kv.extend
        i = 0
        while i < len(running) and step.budget > 0:
            state = running[i]
            computed, known = state.computed, state.known
            n = known + state.drafts - computed
            if 0 < threshold < n:
                n = threshold
            n = min(n, step.budget, longest - computed)
            if not extend(state.table, computed + n, lookahead, known):
                i = self._make_room(step, i, n, now_ps)
                if i < 0:
                    return
                if i >= len(running) or running[i] is not state:
                    continue  # it was its own victim: go on with whoever moved up
            step.carries_prefill |= state.mid_prefill
            drafts = min(state.drafts, max(0, computed + n - known))
            samples = computed + n >= known
            step.work[state.request.rid] = Work(state.request.rid, n, computed, drafts, samples)
            step.budget -= n
            state.drafts = 0
            i += 1

    def _make_room(self, step: Step, i: int, n: int, now_ps: int) -> int:
        """Preempt until running request `i` gets `n` tokens; its new index, −1 to end the loop."""
        running = self._running
        state = running[i]
        while True:
            position = self._victim()
            victim = running.pop(position)
            if position < i:
                i -= 1
            given_back = step.work.pop(victim.request.rid, None)
            if given_back is not None:
                step.budget += given_back.num_tokens
            self._preempt(victim, now_ps)
            step.preempted.append(victim.request.rid)
            if victim is state:
                return i if self._priority_victims else -1
            lookahead = self._settings.num_lookahead_tokens
            if self._kv.extend(state.table, state.computed + n, lookahead, state.known):
                return i

    def _victim(self) -> int:
        """Position of the next victim: the last admitted, or the least urgent under priority."""
        if not self._priority_victims:
            return len(self._running) - 1
        requests = [state.request for state in self._running]
        return max(
            range(len(requests)), key=lambda i: (requests[i].priority, requests[i].arrival_ps)
        )

    def _preempt(self, victim: RequestState, now_ps: int) -> None:
        self._num_preempted += 1
        self._kv.give_up(victim.table, victim.known)
        victim.lose_blocks(self._num_preempted)
        self._waiting.push(victim, ps_to_seconds(now_ps))

    def _schedule_waiting(self, step: Step, now_ps: int) -> None:
        waiting = self._waiting
        if self.num_running < self._max_seqs:
            waiting.refresh(ps_to_seconds(now_ps))
        ran_some = bool(step.work)
        while waiting.entries and step.budget > 0 and self.num_running < self._max_seqs:
            state = waiting.head()
            need, drafts = self._need(state, step, ran_some)
            if not need.new_tokens or not self._kv.admit(state.table, need):
                return  # head-of-line: nobody overtakes it, and nobody is preempted for it
            waiting.pop()
            n, cached = need.new_tokens, need.hits.num_blocks * self._kv.block_size
            samples = cached + n >= state.known
            self._admit(step, state, Work(state.request.rid, n, cached, drafts, samples))

    def _need(self, state: RequestState, step: Step, ran_some: bool) -> tuple[Need, int]:
        """What the head of the queue asks for, and how many of its tokens are dummy drafts."""
        settings = self._settings
        hits = self._kv.lookup(state.table, state.known)
        cached = hits.num_blocks * self._kv.block_size
        n, drafts = self._tokens_to_admit(state, cached, step, ran_some)
        need = Need(
            new_tokens=n,
            known_tokens=state.known,
            lookahead_tokens=settings.num_lookahead_tokens,
            hits=hits,
            full_sequence=settings.scheduler_reserve_full_isl,
            spare_blocks=self._spare_blocks if self.num_running else 0,
        )
        return need, drafts

    def _tokens_to_admit(
        self, state: RequestState, cached: int, step: Step, ran_some: bool
    ) -> tuple[int, int]:
        """(tokens, dummy drafts among them) for the head of the queue; 0 tokens if it must wait."""
        n, k = state.known - cached, self._settings.num_speculative_tokens
        # with drafts, a one-token admission into a pure decode step is padded to a verification,
        # so that the uniform CUDA graph can be kept
        uniform = not step.carries_prefill and (ran_some or cached > 0)
        drafts = k if k and n == 1 and uniform and cached + k + 2 <= self._max_model_len else 0
        n += drafts
        if drafts and n > step.budget:
            return 0, 0
        if 0 < step.threshold < n:
            n = step.threshold
        if n > step.budget and not self._settings.enable_chunked_prefill:
            return 0, 0
        n = min(n, step.budget)
        return n, min(drafts, n - 1)

    def _admit(self, step: Step, state: RequestState, work: Work) -> None:
        resumed = state.requeued > 0
        if not resumed:
            self._queries += state.known if self._caching else 0
            self._hits += work.num_computed
        step.work[work.rid] = work
        step.admitted.append(Admission(work.rid, work.num_computed, resumed))
        step.budget -= work.num_tokens
        state.computed = work.num_computed
        self._num_admitted += 1
        state.admission_order = self._num_admitted
        self._running.append(state)

    def _advance(self, step: Step) -> tuple[tuple[int, int], ...]:
        """Count the planned tokens as computed; (rid, tokens) of what is computed again."""
        recomputed = []
        for rid, work in step.work.items():
            state = self._states[rid]
            if state.computed < state.high_water:
                again = min(work.num_tokens, state.high_water - state.computed)
                recomputed.append((rid, again))
            state.computed += work.num_tokens
            state.mid_prefill = state.computed < state.known
        return tuple(recomputed)
