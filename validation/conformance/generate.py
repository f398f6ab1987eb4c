"""`python -m validation.conformance.generate release=0.33 seeds=0:200 out=FILE.json.gz`.

Steps the installed vLLM's scheduler through random scenarios and writes what it decided.
"""

import sys

from servesim.errors import ServesimError, SettingError
from validation.conformance import coverage, real_vllm
from validation.conformance.options import parse
from validation.conformance.record import record, write_traces
from validation.conformance.workloads import scenario


def main(arguments: list[str]) -> int:
    """Print what the traces cover; 0, or 2 after one line where the release is not installed."""
    try:
        options = parse(arguments)
        if options.out is None or not options.out.name.endswith(".json.gz"):
            raise SettingError("out", str(options.out or ""), "must be a file name in .json.gz")
        real_vllm.require(options.release)
        scenarios = [scenario(options.release, seed) for seed in options.seeds]
        traces = [record(s, real_vllm.RealVllm(s)) for s in scenarios]
        write_traces(options.out, traces)
    except (ServesimError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = options.out.stat().st_size
    print(f"{options.out}: {len(traces)} traces of vllm {options.release}, {size:,} bytes")
    for name, count in (coverage.settings(traces) | coverage.events(traces)).items():
        print(f"  {name:<24}{count:>10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
