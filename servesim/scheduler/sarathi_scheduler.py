"""Sarathi-Serve's stall-free scheduler: every step decodes everyone and fills up with chunks.

Source of every rule: microsoft/sarathi-serve 96f9911
`sarathi/core/scheduler/sarathi_scheduler.py`, without pipeline stages.
"""

from servesim.records import StepPlan
from servesim.scheduler.paged import PagedEngine
from servesim.scheduler.paged_batch import Batch
from servesim.scheduler.state import RequestState
from servesim.units import ps_to_seconds


class SarathiScheduler(PagedEngine):
    """The scheduler of one engine in one run.

    Three passes: a token for every decode, then the unfinished prompts, then new ones, each as
    many tokens as the chunk has left. A victim of the first pass leads the queue of the third.
    """

    def _plan(self, now_ps: int) -> StepPlan:
        batch, now_s = Batch(self._max_tokens), ps_to_seconds(now_ps)
        running = self._running
        running.sort(key=_arrival)  # a victim that is back has its seniority back
        self._continue_running(batch)
        for victim in batch.preempted:
            self._waiting.push(victim, now_s)
        decodes = [state for state in running if not state.mid_prefill]
        chunks = [state for state in running if state.mid_prefill]
        for state in chunks:  # one at most: nobody is let in behind a prompt that was cut
            super()._continue_prompt(batch, state)
        self._running = [*decodes, *chunks]
        self._running += self._admit_prompts(batch, now_s)
        return self._planned(batch, self._running)

    def _has_slot(self, state: RequestState) -> bool:
        return state.mid_prefill or super()._has_slot(state)

    def _continue_prompt(self, batch: Batch, state: RequestState) -> None:
        """Not in the first pass: the decodes behind it come before it."""

    def _settled(self) -> bool:
        """Whether the queue lets nobody in until a running request ends."""
        return len(self._running) >= self._max_seqs or self._refuses_head()


def _arrival(state: RequestState) -> int:
    return state.request.arrival_ps
