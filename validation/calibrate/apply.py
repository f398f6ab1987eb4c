"""`python -m validation.calibrate.apply [folder=conf/cost/kernels]`: the book into the costs.

Host times, residuals and where they are from are written anew into every cost with kernel tables,
which stay as they are. `validation.fit.batch` writes the same, and reads the measurements anew.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from servesim.app.paths import conf_dir
from servesim.errors import MissingDataError, ServesimError
from validation.calibrate.book import BOOK
from validation.fit.__main__ import write
from validation.fit.kernels import calibration
from validation.score.names import option_of

STATED = "stated to the fit"  # how the origin of a host time begins that nobody tuned
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def main(arguments: Sequence[str]) -> int:
    """0, or 2 after one line on bad input."""
    try:
        for word in arguments:
            if not word.startswith("folder="):
                raise ServesimError(f"cannot read '{word}': expected folder=DIR")
        given = [word.removeprefix("folder=") for word in arguments]
        folder = Path(given[-1]) if given else conf_dir() / "cost" / "kernels"
        paths = sorted(folder.glob("*.yaml"))
        if not paths:
            raise MissingDataError(f"folder={folder}: no *.yaml in it")
        for path in paths:
            write(path, applied(path.read_text(encoding="utf-8"), BOOK))
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def applied(text: str, book: Path) -> str:
    """A cost's YAML with the host times and residuals of the book; its head of comments stays."""
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    tree: dict[str, Any] = yaml.load(text, Loader=_LOADER)
    on = tree["fitted_on"]
    hardware, engine = option_of("hardware", on["gpu"]), on["engine"]
    if not str(tree["source"].get("host", "")).startswith(STATED):
        tree["host"], tree["source"]["host"] = calibration.host_of(hardware, engine, book)
    for key in calibration.TUNED:
        tree.pop(key, None)
    tree |= calibration.tuned_of(hardware, engine, book)
    return head + yaml.safe_dump(tree, sort_keys=False, width=100, default_flow_style=None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
