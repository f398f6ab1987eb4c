"""What vLLM's V1 scheduler does differently from release to release, one named switch each.

Which release has which is in `releases`. Paths are those inside vLLM's wheel. Not a switch:
the bound on a running request's tokens, `max_model_len` − 1 − computed, which later releases write
as "less the tokens sampled per step", and that is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from servesim import checks
from servesim.errors import SettingError, UnknownChoiceError

LongHead = Literal["skip", "stop"]
IndexAfterVictim = Literal["stays", "back_if_scheduled", "back_if_before"]
SetAside = Literal["reversed", "in_order", "own_queue"]
StatsAt = Literal["lookup", "admission"]


@dataclass(frozen=True, slots=True)
class Switches:
    """Behaviours of the scheduler that differ between releases.

    In v1/core/sched/scheduler.py, running requests and preemption:

    Attributes:
        scheduled_victim_keeps_tokens: a victim of the priority policy that was already scheduled
            in this step stays in the batch without its blocks and samples nothing, its tokens are
            not returned to the budget, and they count as computed when it resumes (0.11); else
            all that is undone (since 0.15).
        index_after_victim: where the loop goes on after a victim was taken out of the list:
            `stays`, so that a request may be passed over (0.11); `back_if_scheduled`, one back if
            the victim had been scheduled in this step (0.15, 0.20); `back_if_before`, one back if
            it stood before the current request (since 0.32).
        goes_on_after_own_preemption: under the priority policy, a request that preempted itself
            does not end the loop over the others (since 0.33).
        preemption_clears_drafts: a victim loses its drafts (since 0.15); before, drafts stay until
            a step verifies them or new ones come.
        stores_drafts_in_prefill: drafts proposed for a request in mid-prefill are stored (0.11,
            0.15) or ignored (since 0.20).
        async_length_guard: asynchronous scheduling does not plan a further step for a request
            that the step in flight brings to its length cap (since 0.15).
        async_victim_waits: with asynchronous scheduling, tokens of a victim that are in flight are
            delivered before it may resume, and count for nothing else (since 0.32); before, it
            kept its placeholders and could resume at once.
        async_with_drafts: asynchronous scheduling and speculation go together (since 0.15;
            engine/arg_utils.py of 0.11 refuses).

    In the same file, waiting requests:

        lone_request_ignores_threshold: `long_prefill_token_threshold` spares a request that is
            alone in the engine (since 0.32).
        long_head_without_chunking: with chunked prefill off, a prompt beyond the budget left is
            passed over (`skip`, 0.11) or ends admission (`stop`, since 0.15).
        full_sequence_gate: heeds `scheduler_reserve_full_isl` (since 0.20).
        admission_watermark: has the option `watermark` (since 0.32).
        lookahead_at_admission: a new request gets the drafter's slots at once (since 0.32).
        pads_one_token_admission: with drafts, a one-token admission into a step of decodes becomes
            a verification of dummy drafts (since 0.32).
        set_aside: where requests that admission passed over go: to the front of the queue
            `reversed` (0.11) or `in_order` (0.15, 0.32, 0.33), or into a queue of their `own_queue`
            that is served first (0.20). By the priority policy they go where their key says.

    In v1/core/kv_cache_manager.py:

        update_registers_drafted: with drafts, synchronous scheduling too caches full blocks when
            outputs come in, up to the tokens in flight (since 0.33); before, only asynchronous
            scheduling did, up to the placeholders.
        prefix_stats_at: queries and hits count at every `lookup`, those of a head of the queue
            that does not fit over and over (0.11 to 0.20), or once, at `admission` (since 0.32).
        prefix_stats_of_resumed: requests that come back from a preemption count too (0.11).

    In v1/core/block_pool.py:

        unkeyed_to_head: freed blocks without a cached key are the next to be allocated (since
            0.32); before, all freed blocks go to the tail.

    In engine/arg_utils.py:

        defaults_know_160_gib: GPUs of 160 GiB and more have batch defaults of their own (since
            0.32).
    """

    scheduled_victim_keeps_tokens: bool
    index_after_victim: IndexAfterVictim
    goes_on_after_own_preemption: bool
    preemption_clears_drafts: bool
    stores_drafts_in_prefill: bool
    async_length_guard: bool
    async_victim_waits: bool
    async_with_drafts: bool
    lone_request_ignores_threshold: bool
    long_head_without_chunking: LongHead
    full_sequence_gate: bool
    admission_watermark: bool
    lookahead_at_admission: bool
    pads_one_token_admission: bool
    set_aside: SetAside
    update_registers_drafted: bool
    prefix_stats_at: StatsAt
    prefix_stats_of_resumed: bool
    unkeyed_to_head: bool
    defaults_know_160_gib: bool

    def __post_init__(self) -> None:
        for field in fields(self):
            setting, value = f"switches.{field.name}", getattr(self, field.name)
            if field.type is bool:
                checks.flag(setting, value)
            elif value not in get_args(field.type):
                known = ", ".join(get_args(field.type))
                raise SettingError(setting, value, f"must be one of {known}")

    def but(self, changes: Mapping[str, object]) -> "Switches":
        """The same with some of them set otherwise.

        Raises:
            UnknownChoiceError: no switch has that name.
            SettingError: a switch cannot have that value.
        """
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise UnknownChoiceError("switch", name, known)
        return replace(self, **changes)  # type: ignore[arg-type]

    def differences(self, other: "Switches") -> list[str]:
        """`name=value` of each switch that `other` has set otherwise."""
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        changed = [(name, value) for name, value in pairs if value != getattr(other, name)]
        return [f"{name}={str(value).lower()}" for name, value in changed]
