"""Rows of steps.parquet, from steps and from the runs that stand for many of them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from servesim.engine.under_way import Run, Step
from servesim.records import StepRecord


def step_record(step: Step) -> StepRecord:
    """One step as a row."""
    plan = step.plan
    prefills = [w for w in plan.work if w.num_tokens > 1 + w.num_drafts]
    prefill_tokens = sum(w.num_tokens for w in prefills)
    return StepRecord(
        start_ps=step.start_ps,
        duration_ps=step.time.duration_ps,
        num_seqs=plan.num_seqs,
        num_prefill_seqs=len(prefills),
        prefill_tokens=prefill_tokens,
        decode_tokens=plan.num_tokens - prefill_tokens,
        num_waiting=step.waiting,
        num_preempted=len(plan.preempted),
        kv_blocks_used=step.blocks_used,
        kv_slots_unused=step.slots_unused,
    )


def run_records(
    run: Run, steps: int, taken: Sequence[int], block_size: int
) -> Iterator[StepRecord]:
    """The steps of a run as rows, as if each had been looked at.

    Args:
        run: what was under way.
        steps: how many of its steps were taken.
        taken: blocks that each of them took.
        block_size: tokens per block.
    """
    used, unused = run.blocks_used, run.slots_unused
    start = run.start_ps
    for step in range(steps):
        used += taken[step]
        unused += taken[step] * block_size - run.decodes.seqs
        duration = run.durations.at(step)
        yield StepRecord(
            start_ps=start,
            duration_ps=duration,
            num_seqs=run.decodes.seqs,
            num_prefill_seqs=0,
            prefill_tokens=0,
            decode_tokens=run.decodes.seqs,
            num_waiting=run.waiting + bisect_right(run.arrivals_ps, start),
            num_preempted=0,
            kv_blocks_used=used,
            kv_slots_unused=unused,
        )
        start += duration
