"""The free parameters: names, scales, and how a set of values is laid over a run's setup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from servesim.app.setup import Setup
from servesim.cost.kernels import Kernels
from servesim.engine.front_end import FrontEnd
from servesim.errors import ServesimError, UnknownChoiceError
from servesim.units import US_PER_S


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number to be tuned.

    Attributes:
        name: `host.KEY` of a kernels cost or `front_end.KEY`, microseconds; or a field of the cost.
        typical: its order of magnitude, which scales the search.
        start: where the search begins.
        most: upper bound; the lower one is zero.
    """

    name: str
    typical: float
    start: float
    most: float


PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("host.us", 500.0, 500.0, 20_000.0),
        Parameter("host.us_per_seq", 10.0, 5.0, 500.0),
        Parameter("host.us_per_token", 0.2, 0.0, 20.0),
        Parameter("host.exposed_us", 500.0, 300.0, 20_000.0),
        Parameter("host.eager_us", 500.0, 0.0, 20_000.0),
        Parameter("host.launch_us_per_layer", 500.0, 800.0, 5_000.0),
        Parameter("all_reduce_share", 0.5, 1.0, 1.5),
        Parameter("front_end.queue_us", 5_000.0, 5_000.0, 500_000.0),
        Parameter("front_end.queue_us_per_prompt_token", 2.0, 0.0, 100.0),
    )
}

Values = Mapping[str, float]  # parameter → value
COST_FIELDS = ("all_reduce_share",)


def chosen(names: Sequence[str]) -> tuple[Parameter, ...]:
    """Parameters by name, or UnknownChoiceError."""
    for name in names:
        if name not in PARAMETERS:
            raise UnknownChoiceError("free", name, PARAMETERS)
    return tuple(PARAMETERS[name] for name in names)


def laid_over(setup: Setup, values: Values, at_front_end: bool) -> Setup:
    """The setup with these values instead of its own.

    Args:
        setup: of a run whose cost has kernel tables.
        values: of parameters; a part of which nothing is named keeps what it has.
        at_front_end: whether its latencies hold the front end's delays.

    Raises:
        ServesimError: the cost has no host time of its own to be set.
    """
    if not isinstance(setup.cost, Kernels):
        raise ServesimError("calibration is of costs with kernel tables")
    host = {**setup.cost.host, **part("host", values)}
    share = values.get("all_reduce_share", setup.cost.all_reduce_share)
    cost = replace(setup.cost, host=host, all_reduce_share=share)
    setup = replace(setup, cost=cost)
    delays = part("front_end", values)
    if not at_front_end or not delays:
        return setup
    seconds = {name.replace("_us", "_s", 1): us / US_PER_S for name, us in delays.items()}
    return replace(setup, front_end=FrontEnd(**seconds))


def part(name: str, values: Values) -> dict[str, float]:
    """The values of one part, `host` or `front_end`, by their own keys."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
