"""servesim's `sglang` beside the scheduler of an installed SGLang, on random cases.

`python -m validation.conformance.sglang_live seeds=0:500` steps both through 500 random cases;
`record=FILE` keeps what the real one did for `python -m validation.conformance.sglang_replay`.
Needs sglang 0.5.23 and what its scheduler imports; no GPU (README.md).
"""

import sys
from dataclasses import replace

from servesim.errors import ServesimError
from validation.conformance.options import parse_live
from validation.conformance.sglang_cases import random_case
from validation.conformance.sglang_replay import replay, report, taken
from validation.conformance.sglang_trace import Trace, write_traces

_USAGE = "usage: python -m validation.conformance.sglang_live [seeds=0:500] [record=FILE]"


def main(arguments: list[str]) -> int:
    """0 if all steps agree, 1 if one differs, 2 on bad input."""
    options = parse_live(arguments)
    if options is None:
        print(_USAGE, file=sys.stderr)
        return 2
    seeds, file = options
    from validation.conformance.sglang_engine import require  # imports much, only here

    try:
        require()
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    traces = [_record(seed) for seed in seeds]
    if file is not None:
        write_traces(file, traces)
    pairs = ((trace, replay(trace.case)) for trace in traces)
    return 0 if report(f"seeds {seeds.start}:{seeds.stop}", pairs) else 1


def _record(seed: int) -> Trace:
    from validation.conformance.sglang_engine import run

    case = random_case(seed)
    return run(replace(case, requests=taken(case)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
