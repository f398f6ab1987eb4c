"""The seam for engine profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from servesim import checks
from servesim.errors import SettingError
from servesim.hardware.gpu import GPU
from servesim.policies.order.base import Order
from servesim.policies.victim.base import Victim
from servesim.records import Decodes, PrefixStats, Request, StepOutcome, StepPlan


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The KV cache as the engine sees it.

    Attributes:
        num_gpu_blocks: blocks, the null block included.
        block_size: tokens per block.
        enable_prefix_caching: whether full blocks are findable by content.
        kv_bytes_per_token: K and V of one token on one rank; None where no profile asks.
    """

    num_gpu_blocks: int
    block_size: int
    enable_prefix_caching: bool
    kv_bytes_per_token: int | None = None

    def __post_init__(self) -> None:
        checks.whole("num_gpu_blocks", self.num_gpu_blocks, at_least=2)
        checks.whole("block_size", self.block_size, at_least=1)
        checks.flag("enable_prefix_caching", self.enable_prefix_caching)
        if self.kv_bytes_per_token is not None:
            checks.whole("kv_bytes_per_token", self.kv_bytes_per_token, at_least=1)


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """All that an engine profile is started with besides its own settings.

    Attributes:
        gpu: what it runs on.
        cache: its KV cache.
        max_model_len: longest context, tokens.
        order: of the waiting queue.
        victim: who is preempted; None leaves it to the engine.
    """

    gpu: GPU
    cache: CacheSize
    max_model_len: int
    order: Order
    victim: Victim | None = None

    def __post_init__(self) -> None:
        checks.whole("max_model_len", self.max_model_len, at_least=2)

    def refuse_victim_policy(self, why: str) -> None:
        """For profiles in which nobody chooses a victim.

        Raises:
            SettingError: a victim policy was asked for.
        """
        if self.victim is not None:
            policy = type(self.victim).__name__
            raise SettingError("policies.victim", policy, f"{why}; nearest: policies/victim=engine")


class Scheduler(Protocol):
    """One engine's scheduler in one run. `schedule` and `update` alternate."""

    @property
    def num_speculative_tokens(self) -> int:
        """Drafts per verification that it expects to be proposed to it; 0 for none."""

    @property
    def num_running(self) -> int:
        """Admitted requests, those in mid-prefill included."""

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue, preempted ones included."""

    @property
    def kv_blocks(self) -> int:
        """Blocks that requests can hold."""

    @property
    def kv_blocks_used(self) -> int:
        """Blocks held by requests."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @property
    def kv_slots_unused(self) -> int:
        """Token slots of held blocks that hold no token's KV: reserved, or not yet reached."""

    @property
    def pipeline_depth(self) -> int:
        """Steps planned before the first of them is taken in: 1, or 2 (asynchronous scheduling).

        With 2, `schedule` is called when the step before has been planned and is not yet over.
        """

    @property
    def prefix_stats(self) -> PrefixStats:
        """Totals so far."""

    def load(self) -> tuple[int, int]:
        """(requests waiting, KV blocks held)."""

    def reject_reason(self, request: Request) -> str | None:
        """Why the engine's front end refuses the request, or None. Ask before `add`."""

    def add(self, request: Request, predicted_tokens: float) -> bool:
        """Put a request into the waiting queue; False if a run of steady steps may go on."""

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step. `now_ps` is for orders that change with time, and for nothing else."""

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in: one per sampling request plus its accepted drafts."""

    def steady_steps(self) -> int:
        """How many steps from now on continue the same decodes and decide nothing else.

        True until a request arrives. 0 where it cannot say: the replica then steps. With
        `pipeline_depth` 2 they begin with the step in flight.
        """

    def next_decodes(self) -> Decodes:
        """The batch of the first steady step."""

    def advance(self, steps: int) -> Sequence[int]:
        """Take steady steps; the blocks that each of them took.

        With `pipeline_depth` 2, plan as many steps behind the one in flight, and take in all but
        the last; the blocks are those that each of these plans took.
        """

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""

    def decoding(self) -> tuple[tuple[int, int], ...]:
        """(rid, tokens streamed so far) of the requests that steady steps continue."""


class Profile(Protocol):
    """An engine's settings; a value whose fields are its YAML."""

    @property
    def overlaps_host(self) -> bool:
        """Whether a step is planned while the one before it runs."""

    def start(self, setup: EngineSetup, stepwise: bool = False) -> Scheduler:
        """A scheduler with empty queues; with `stepwise`, one without steady steps."""

    def describe(self, setup: EngineSetup) -> str:
        """Engine, release and the limits in force, for the summary."""
