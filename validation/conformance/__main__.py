"""`python -m validation.conformance FILE...`: replay trace files of real schedulers."""

import sys
from pathlib import Path

from servesim.errors import ServesimError, SettingError, TraceError
from validation.conformance.replay import Result, UnsupportedTraceError, replay
from validation.conformance.trace import read_traces


def main(arguments: list[str]) -> int:
    """Print a line per file; 0 if all compared traces agree, 1 if one differs, 2 on bad input."""
    if not arguments:
        print("usage: python -m validation.conformance FILE...", file=sys.stderr)
        return 2
    differing = compared = all_steps = all_mismatches = 0
    for argument in arguments:
        try:
            results, unsupported = _replay_file(Path(argument))
        except ServesimError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        steps = sum(r.num_steps for r in results)
        mismatches = sum(r.num_mismatches for r in results)
        compared += len(results)
        differing += mismatches > 0
        all_steps, all_mismatches = all_steps + steps, all_mismatches + mismatches
        print(f"{argument}: {len(results)} traces, {steps} steps, {mismatches} mismatches")
        for result in results:
            if result.num_mismatches:
                print(f"  {result.name}: {result.first_difference}")
        for stand_in in sorted({r.stand_in for r in results if r.stand_in}):
            print(f"  release {stand_in}, not exact")
        for reason in unsupported:
            print(f"  not compared: {reason}")
    if not compared:
        print("error: nothing was compared", file=sys.stderr)
        return 2
    print(f"{all_steps} steps, {all_mismatches} mismatches")
    return 1 if differing else 0


def _replay_file(path: Path) -> tuple[list[Result], list[str]]:
    results, unsupported = [], []
    for trace in read_traces(path):
        try:
            results.append(replay(trace))
        except UnsupportedTraceError as error:
            unsupported.append(str(error))
        except SettingError as error:
            raise TraceError(str(path), None, f"trace '{trace.name}': {error}") from None
    return results, unsupported


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
