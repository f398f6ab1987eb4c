"""`servesim` and `python -m servesim`: a thin dispatcher over small Hydra applications.

Without a sub-command it runs a simulation or a sweep.
"""

import sys
from collections.abc import Callable, Sequence

import servesim


def _simulate(arguments: Sequence[str]) -> int:
    from servesim.app.simulate import main as simulate_main

    return simulate_main(arguments)


def _size(arguments: Sequence[str]) -> int:
    from servesim.app.size import main as size_main

    return size_main(arguments)


# name → application; each imports what it needs only when it is asked for
SUBCOMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"size": _size}


def main(arguments: Sequence[str] | None = None) -> int:
    """Dispatch; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"servesim {servesim.__version__}")
        return 0
    if words and words[0] in SUBCOMMANDS:
        return SUBCOMMANDS[words[0]](words[1:])
    return _simulate(words)


if __name__ == "__main__":
    sys.exit(main())
