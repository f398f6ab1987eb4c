"""What tests share: requests, an engine, a timer whose times can be added by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

from servesim.cost.base import listed_run
from servesim.cost.durations import Durations
from servesim.engine.simulation import RunOptions, run
from servesim.hardware.gpu import GPU
from servesim.policies.order.base import Order
from servesim.policies.order.fcfs import Fcfs
from servesim.records import Decodes, Request, RunRecord, StepPlan, StepTime
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.vllm.v1 import VllmV1
from servesim.scheduler.vllm.v1_scheduler import VllmV1Scheduler

ANY_GPU = GPU("any", 80.0, 1.0, {"bf16": 1.0}, 1.0)
MS = 10**9  # picoseconds


@dataclass(frozen=True)
class LinearTimer:
    """per_step + per_token · tokens, picoseconds."""

    per_step: int = 10 * MS
    per_token: int = 0

    def step_time(self, plan: StepPlan) -> StepTime:
        return StepTime(self.per_step + self.per_token * plan.num_tokens)

    def decode_run(self, decodes: Decodes, steps: int) -> Durations:
        return listed_run(self, decodes, steps)


def request(rid: int, arrival_ps: int = 0, prompt: int = 4, output: int = 2, **more) -> Request:
    return Request(rid, arrival_ps, prompt, output, more.pop("max_tokens", output), **more)


def engine(
    blocks: int = 1001,
    block_size: int = 4,
    max_tokens: int = 64,
    max_seqs: int = 8,
    max_model_len: int = 4000,
    caching: bool = True,
    order: Order | None = None,
    stepwise: bool = False,
    **settings,
) -> VllmV1Scheduler:
    cache = CacheSize(blocks, block_size, caching)
    setup = EngineSetup(ANY_GPU, cache, max_model_len, order or Fcfs())
    profile = VllmV1(max_num_batched_tokens=max_tokens, max_num_seqs=max_seqs, **settings)
    return profile.start(setup, stepwise)


def serve(requests: Sequence[Request], scheduler=None, timer=None, **options) -> RunRecord:
    return run(
        requests,
        [0.0] * len(requests),
        scheduler or engine(),
        timer or LinearTimer(),
        RunOptions(**options),
    )
