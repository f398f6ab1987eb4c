"""The Python interface, for notebooks and scripts."""

from omegaconf import DictConfig

from servesim.app.compose import composed
from servesim.app.hydra_errors import USER_ERRORS, reworded
from servesim.app.progress import progress_bar
from servesim.app.result import Result
from servesim.app.run import execute
from servesim.app.setup import Setup, build


def simulate(*overrides: str, progress: bool = False, keep_steps: bool = False) -> Result:
    """Run one simulation and return its summary, requests and steps.

    Args:
        overrides: settings as on the command line, e.g. "workload.rate_rps=4".
        progress: show a progress bar.
        keep_steps: fill `Result.steps`.

    Raises:
        ServesimError: one line that names the setting and the nearest valid choice.
    """
    setup = setup_from(*overrides)
    load = setup.workload.load(setup.seed)
    with progress_bar(len(load.requests), progress) as observer:
        return execute(setup, keep_steps, observer, load)


def setup_from(*overrides: str) -> Setup:
    """The objects that the configuration names, for those who want to change one in Python."""
    cfg, labels = _compose(overrides)
    return build(cfg, labels)


def _compose(overrides: tuple[str, ...]) -> tuple[DictConfig, dict[str, str]]:
    try:
        cfg = composed(overrides, with_hydra=True)
    except USER_ERRORS as error:
        message = reworded(error, overrides)
        if message is None:
            raise
        raise message from None
    return cfg, dict(cfg.hydra.runtime.choices)
