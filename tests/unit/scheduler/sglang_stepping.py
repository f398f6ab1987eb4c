"""An SGLang engine driven by hand, and random ones."""

from serving import ANY_GPU, MS, request

from servesim.content import Content, SharedPrefix, Tokens, TraceBlocks, Unique
from servesim.policies.order.base import Order
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.victim.base import Victim
from servesim.records import Request, StepPlan
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.sglang.profile import SGLang
from servesim.scheduler.sglang.scheduler import SGLangScheduler


def sglang(
    *,
    tokens: int = 100,
    max_len: int = 64,
    caching: bool = True,
    order: Order | None = None,
    victim: Victim | None = None,
    stepwise: bool = False,
    **settings: object,
) -> SGLangScheduler:
    """An engine whose pool has `tokens` slots."""
    cache = CacheSize(tokens + 1, 1, caching)
    setup = EngineSetup(ANY_GPU, cache, max_len, order or Fcfs(), victim)
    return SGLang(**settings).start(setup, stepwise)


class Stepper:
    """An engine by names: `step` gives the batch as `name:tokens`, in the engine's order."""

    def __init__(self, **settings: object) -> None:
        self.engine = sglang(stepwise=True, **settings)
        self.names: list[str] = []
        self.plan = StepPlan(())
        self._in_flight: list[StepPlan] = []
        self.finished: list[str] = []
        self.cached: dict[str, int] = {}

    def add(
        self,
        name: str,
        prompt: int,
        output: int = 2,
        *,
        max_tokens: int | None = None,
        priority: int = 0,
        content: Content = Unique(),  # noqa: B008  frozen
    ) -> None:
        rid = len(self.names)
        arriving = request(
            rid,
            rid * MS,
            prompt,
            output,
            max_tokens=max_tokens or output,
            priority=priority,
            content=content,
        )
        assert self.engine.reject_reason(arriving) is None
        self.names.append(name)
        self.engine.add(arriving)

    def step(self) -> str:
        engine = self.engine
        self.plan = engine.schedule(0) if engine.num_running or engine.num_waiting else StepPlan(())
        self._in_flight.append(self.plan)
        landing = self._in_flight.pop(0) if len(self._in_flight) == engine.pipeline_depth else None
        outcome = engine.update(landing or StepPlan(()), {})
        self.finished += [self.names[rid] for rid in outcome.finished]
        for admission in self.plan.admitted:
            self.cached[self.names[admission.rid]] = admission.cached_tokens
        return " ".join(f"{self.names[w.rid]}:{w.num_tokens}" for w in self.plan.work)

    def steps(self, count: int) -> list[str]:
        return [self.step() for _ in range(count)]

    def retracted(self) -> str:
        return " ".join(self.names[rid] for rid in self.plan.preempted)

    def waiting(self) -> str:
        return " ".join(self.names[s.request.rid] for s in self.engine._waiting.entries)

    def run_out(self, limit: int = 2000) -> None:
        while self.engine.num_running or self.engine.num_waiting:
            self.step()
            limit -= 1
            assert limit, "the engine makes no progress"


def contents(draw, st, prompt: int, output: int) -> Content:
    """Prefixes that requests share, and whole replies."""
    kind = draw(st.sampled_from(("unique", "prefix", "trace", "tokens")))
    if kind == "prefix":
        return SharedPrefix(draw(st.integers(0, 2)), draw(st.integers(1, prompt + 4)))
    if kind == "trace":
        length, branch = draw(st.integers(0, (prompt + output) // 4)), draw(st.integers(0, 2))
        return TraceBlocks(tuple(i * 3 + (branch if i > 2 else 0) for i in range(length)), 4)
    if kind == "tokens":
        cut, start = draw(st.integers(0, prompt + output)), draw(st.integers(0, 1))
        tail = range(900 * draw(st.integers(1, 2)), 900 * 2 + prompt + output)
        return Tokens((*range(start, start + cut), *tail)[: prompt + output])
    return Unique()


def check_slots(engine: SGLangScheduler) -> None:
    """No token slot is lost, counted twice or locked by nobody."""
    cache, tree = engine._cache, engine._cache.tree
    nodes = list(tree.nodes())
    assert tree.num_evictable == sum(n.num_tokens for n in nodes if not n.locks)
    assert tree.num_locked == sum(n.num_tokens for n in nodes if n.locks)
    admitted = list(engine._admitted())
    own = sum(cache.ceil(s.computed) - s.row.num_in_tree for s in admitted)
    assert own >= 0
    assert cache.num_free >= 0
    assert cache.num_free + tree.num_evictable + tree.num_locked + own == cache.capacity
    locks = dict.fromkeys(nodes, 0)
    for state in admitted:
        node, depth = state.row.node, 0
        while node.parent is not None:
            locks[node] += 1
            depth += node.num_tokens
            node = node.parent
        assert depth == state.row.num_in_tree
    assert {node: node.locks for node in nodes} == locks
    for node in nodes:
        assert node.num_tokens == sum(run.num_tokens for run in node.key) > 0
        assert node.num_tokens % cache.page_size == 0
        assert node.parent.locks >= node.locks or node.parent is tree.root


def finished_all(requests: list[Request], records) -> bool:
    by_rid = {record.rid: record for record in records}
    return all(
        by_rid[r.rid].status == "rejected"
        or by_rid[r.rid].output_tokens == min(r.output_tokens, r.max_tokens)
        for r in requests
    )
