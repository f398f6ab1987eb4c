"""`python -m validation.conformance.fuzz release=0.33 seeds=0:5000`: no file in between.

Each seed's scenario runs through the installed vLLM's scheduler and through servesim's, and every
step is compared as a replay of a trace file does it.
"""

import sys
from collections import Counter

from servesim.errors import ServesimError
from validation.conformance import coverage, real_vllm
from validation.conformance.options import Options, parse
from validation.conformance.record import record
from validation.conformance.replay import replay
from validation.conformance.workloads import scenario

_SHOWN = 20  # differing seeds that are described
_REPORT_EVERY = 1000  # seeds


def main(arguments: list[str]) -> int:
    """Print the totals; 0 if all steps agree, 1 if one differs, 2 on bad input or no vLLM."""
    try:
        options = parse(arguments)
        real_vllm.require(options.release)
        differing = _run(options)
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if differing else 0


def _run(options: Options) -> int:
    totals: Counter[str] = Counter()
    differing = 0
    for number, seed in enumerate(options.seeds, 1):
        planned = scenario(options.release, seed)
        trace = record(planned, real_vllm.RealVllm(planned))
        totals.update(coverage.events([trace]))
        result = replay(trace)
        if result.num_mismatches:
            differing += 1
            if differing <= _SHOWN:
                print(f"  {result.name}: {result.first_difference}", flush=True)
        if number % _REPORT_EVERY == 0 or number == len(options.seeds):
            _report(options.release, number, totals, differing)
    return differing


def _report(release: str, num_seeds: int, totals: Counter[str], differing: int) -> None:
    counts = ", ".join(f"{totals[name]:,} {name}" for name in coverage.EVENTS)
    print(f"vllm {release}: {num_seeds:,} seeds, {counts}; {differing} mismatches", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
