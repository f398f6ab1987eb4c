"""Engines that reserve slots, driven by hand: one readable row per step, no clock."""

from serving import ANY_GPU

from servesim.policies.order.fcfs import Fcfs
from servesim.records import Request, StepPlan
from servesim.scheduler.base import CacheSize, EngineSetup


def setup_of(slots=20, max_len=20, order=None, victim=None):
    """Blocks of one token, so that their number is that of the slots."""
    cache = CacheSize(slots + 1, 1, enable_prefix_caching=False)
    return EngineSetup(ANY_GPU, cache, max_len, order or Fcfs(), victim)


class Driver:
    """A scheduler with names for its requests."""

    def __init__(self, profile, stepwise=True, **setup):
        self.scheduler = profile.start(setup_of(**setup), stepwise)
        self.names: list[str] = []
        self.plan = StepPlan(())

    def add(self, name, prompt, output, max_tokens=None):
        request = Request(len(self.names), 0, prompt, output, max_tokens or output)
        assert self.scheduler.reject_reason(request) is None
        self.names.append(name)
        return self.scheduler.add(request)

    def step(self):
        """Who computed how many tokens, slots held and unused of them, who ended."""
        scheduler = self.scheduler
        self.plan = plan = scheduler.schedule(0)
        batch = " ".join(f"{self.names[w.rid]}{w.num_tokens}" for w in plan.work)
        held, unused = scheduler.kv_blocks_used, scheduler.kv_slots_unused
        outcome = scheduler.update(plan, {})
        return batch, held, unused, " ".join(self.names[rid] for rid in outcome.finished)
