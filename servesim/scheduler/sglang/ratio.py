"""SGLang's new_token_ratio: the share of its remaining max_new_tokens a running request is charged.

Source: SGLang 0.5.23, managers/scheduler_components/new_token_ratio_tracker.py, environ.py.
"""

from collections.abc import Sequence

from servesim.scheduler.sglang.state import SGLangState

INIT_NEW_TOKEN_RATIO = 0.7
MIN_NEW_TOKEN_RATIO_FACTOR = 0.14
NEW_TOKEN_RATIO_DECAY_STEPS = 600
RETRACT_DECODE_STEPS = 20  # decode steps that a retraction makes room for


class NewTokenRatio:
    """The ratio of one run: sinks with every decode step, jumps up with a retraction.

    Attributes:
        current: the ratio now.
    """

    def __init__(self, schedule_conservativeness: float) -> None:
        self._init = min(INIT_NEW_TOKEN_RATIO * schedule_conservativeness, 1.0)
        self._min = min(self._init * MIN_NEW_TOKEN_RATIO_FACTOR, 1.0)
        self._decay = (self._init - self._min) / NEW_TOKEN_RATIO_DECAY_STEPS
        self.current = self._init

    def decay(self, steps: int = 1) -> None:
        """So many decode steps without a retraction, rounded as the engine does, one by one."""
        for _ in range(steps):
            if self.current == self._min:
                return
            self.current = max(self.current - self._decay, self._min)

    def retracted(self, running: Sequence[SGLangState]) -> None:
        """Some were retracted and `running` are left."""
        generated = sum(state.generated for state in running)
        most = sum(state.max_new_tokens for state in running)
        self.current = min(1.0, (generated + RETRACT_DECODE_STEPS * len(running)) / (most + 1))

    def reset(self) -> None:
        """The engine is idle."""
        self.current = self._init
