"""servesim's `hf` beside the scheduler of an installed transformers, on random loads.

`python -m validation.conformance.hf_live seeds=0:500` steps the real engine through 500 loads and
servesim through the same ones; `record=FILE` keeps what the real one did for
`python -m validation.conformance.hf_replay`. Needs transformers and torch (`.[validation]`).
"""

import logging
import sys
from collections.abc import Iterator

from validation.conformance.hf_replay import replay
from validation.conformance.hf_report import Result, report
from validation.conformance.hf_trace import RELEASE, Trace, write
from validation.conformance.hf_workloads import random_workload
from validation.conformance.options import parse_live

_USAGE = "usage: python -m validation.conformance.hf_live [seeds=0:500] [record=FILE]"


def record(seed: int) -> Trace:
    """What the real engine does with the load of a seed.

    Raises:
        ImportError: where transformers or torch is missing.
    """
    from validation.conformance.hf_engine import Engine  # imports torch, which takes seconds

    config, requests = random_workload(seed)
    rows = Engine(config, requests).run()
    return Trace(f"seed {seed}", config, requests, rows)


def main(arguments: list[str]) -> int:
    """Print the sums; 0 if all steps agree, 1 if one differs, 2 on bad input."""
    options = parse_live(arguments)
    if options is None:
        print(_USAGE, file=sys.stderr)
        return 2
    seeds, file = options
    problem = _missing()
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    traces: list[Trace] = []
    results = list(_compared(seeds, traces if file else None))
    if file:
        write(file, traces)
    differs = report(f"transformers {RELEASE}, seeds {seeds.start}:{seeds.stop}", results)
    return 1 if differs else 0


def _compared(seeds: range, kept: list[Trace] | None) -> Iterator[Result]:
    for seed in seeds:
        trace = record(seed)
        if kept is not None:
            kept.append(trace)
        yield replay(trace)


def _missing() -> str:
    """Why the real engine cannot be stepped here, or nothing."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        return f"needs transformers {RELEASE} and torch: {error}; pip install -e '.[validation]'"
    if transformers.__version__ != RELEASE:
        return f"needs transformers {RELEASE}, and {transformers.__version__} is installed"
    logging.getLogger("transformers").setLevel(logging.ERROR)
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
