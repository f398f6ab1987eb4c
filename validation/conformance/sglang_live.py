"""servesim's `sglang` beside the scheduler of an installed SGLang, on random cases.

`python -m validation.conformance.sglang_live seeds=0:500` steps both through 500 random cases;
`record=FILE` keeps what the real one did for `python -m validation.conformance.sglang_replay`.
Needs sglang 0.5.23 and what its scheduler imports; no GPU (README.md).
"""

import sys
from dataclasses import replace
from pathlib import Path

from servesim.errors import ServesimError
from validation.conformance.sglang_cases import random_case
from validation.conformance.sglang_replay import replay, report, taken
from validation.conformance.sglang_trace import Trace, write_traces

_USAGE = "usage: python -m validation.conformance.sglang_live [seeds=0:500] [record=FILE]"


def main(arguments: list[str]) -> int:
    """0 if all steps agree, 1 if one differs, 2 on bad input."""
    options = dict(argument.partition("=")[::2] for argument in arguments)
    first, _, end = options.pop("seeds", "0:500").partition(":")
    file = options.pop("record", None)
    if options or not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        print(_USAGE, file=sys.stderr)
        return 2
    from validation.conformance.sglang_engine import require  # imports much, only here

    try:
        require()
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    traces = [_record(seed) for seed in range(int(first), int(end))]
    if file is not None:
        write_traces(Path(file), traces)
    pairs = ((trace, replay(trace.case)) for trace in traces)
    return 0 if report(f"seeds {first}:{end}", pairs) else 1


def _record(seed: int) -> Trace:
    from validation.conformance.sglang_engine import run

    case = random_case(seed)
    return run(replace(case, requests=taken(case)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
