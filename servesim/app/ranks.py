"""Data-parallel ranks of a run: whether they can be simulated, and what is started for them."""

from servesim.app.setup import Setup
from servesim.cost.base import StepTimer
from servesim.cost.lockstep import LockstepTimer, SharingTimer
from servesim.errors import SettingError
from servesim.metrics.base import Value
from servesim.scheduler.base import EngineSetup, Scheduler
from servesim.scheduler.lockstep import LockstepScheduler


def timer_of(setup: Setup) -> StepTimer:
    """The timer of a run: of one engine, or of ranks in lock-step.

    Raises:
        CostMismatchError: the cost does not hold for the deployment.
        SettingError: ranks that this engine, model or cost does not have.
    """
    timer = setup.cost.bind(setup.deployment)
    if setup.deployment.dp == 1:
        return timer
    _check(setup, timer)
    return LockstepTimer(timer)


def scheduler_of(setup: Setup, engine: EngineSetup) -> Scheduler:
    """The scheduler of a run, likewise."""
    dp = setup.deployment.dp
    ranks = [setup.profile.start(engine, setup.stepwise) for _ in range(dp)]
    return ranks[0] if dp == 1 else LockstepScheduler(ranks, setup.routing.start(dp))


def columns(setup: Setup) -> dict[str, Value]:
    """Of the summary, where there are ranks."""
    dp = setup.deployment.dp
    return {} if dp == 1 else {"dp": dp, "routing": setup.labels.get("policies/routing")}


def notes(setup: Setup) -> list[str]:
    """What the numbers rest on, where there are ranks."""
    dp = setup.deployment.dp
    if dp == 1:
        return []
    return [
        f"{dp} data-parallel ranks in lock-step, experts split over them; KV blocks, "
        "max_num_seqs and max_num_batched_tokens are of each rank"
    ]


def _check(setup: Setup, timer: StepTimer) -> None:
    """Refuse what would not be what an engine does."""
    dp, model, scheduler = setup.deployment.dp, setup.deployment.model, setup.labels["scheduler"]
    if not getattr(setup.profile, "shares_experts", False):
        reason = f"scheduler={scheduler} has no ranks in lock-step"
        raise SettingError("dp", dp, f"{reason}; nearest: dp=1, or scheduler=vllm_v1")
    if not model.expected_active_experts(1):
        reason = f"{model.name} has no experts to share: its ranks would be independent engines"
        raise SettingError("dp", dp, f"{reason}; nearest: dp=1")
    if not isinstance(timer, SharingTimer):
        reason = f"cost={setup.labels['cost']} knows nothing of experts split over ranks"
        raise SettingError("dp", dp, f"{reason}; nearest: dp=1, or cost=roofline")
