"""Servesim: discrete-event simulation of LLM serving.

>>> import servesim
>>> result = servesim.simulate("workload.rate_rps=4", "policies/order=sjf_predicted")
>>> result.summary["ttft_p99_s"], len(result.requests)  # doctest: +SKIP
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servesim.app.api import simulate
    from servesim.app.result import Result

try:
    __version__ = version("servesim")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["Result", "__version__", "simulate"]


def __getattr__(name: str) -> Any:
    """Import the application only when it is asked for: a scheduler test needs no Hydra."""
    if name == "simulate":
        from servesim.app.api import simulate

        return simulate
    if name == "Result":
        from servesim.app.result import Result

        return Result
    raise AttributeError(f"module 'servesim' has no attribute '{name}'")
