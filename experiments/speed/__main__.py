"""`python -m experiments.speed [requests=N] [case=NAME] [output.format=json] [setting=value ...]`.

Times the simulation loop alone, on one core: requests and objects are made before, tables after.
Every case runs twice in one process, skipping and stepping, and the records of both are compared.
"""

import json
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.speed.cases import CASES, RECORDED, with_recorded_lengths
from servesim.app.api import setup_from
from servesim.engine.simulation import RunOptions, Simulation
from servesim.errors import ServesimError, UnknownChoiceError
from servesim.records import Request

_KIB_PER_MIB = 1024
_OWN = ("requests", "case", "output.format")


def measure(case: str, requests: int, stepwise: bool, overrides: list[str]) -> dict[str, Any]:
    """One timed run; the row, and the record under "record"."""
    settings = (*CASES[case], f"workload.num_requests={requests}", *overrides)
    setup = setup_from(*settings)
    made = setup.workload.load(setup.seed)
    load: Sequence[Request] = made.requests
    if case == RECORDED:
        load = with_recorded_lengths(load)
    predictions = [setup.predictor.predict(request, setup.seed) for request in load]
    scheduler = setup.profile.start(setup.engine(setup.budget()), stepwise)
    timer = setup.cost.bind(setup.deployment)
    options = RunOptions(release=made.release, front_end=setup.front_end)
    simulation = Simulation(load, predictions, scheduler, timer, options)
    started = time.perf_counter()
    simulation.run()
    seconds = time.perf_counter() - started
    record = simulation.record()
    totals = record.totals
    return {
        "case": case,
        "stepwise": stepwise,
        "requests": len(load),
        "requests_per_s": len(load) / seconds,
        "decisions_per_request": totals.decisions / len(load),
        "steps_per_decision": totals.steps / totals.decisions,
        "preemptions": sum(r.preemptions for r in record.requests),
        "prefix_hit_rate": record.prefix_stats.hits / max(record.prefix_stats.queries, 1),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MIB,
        "record": record,
    }


def main(arguments: list[str]) -> int:
    """0; 1 if skipping changed a record; 2 on bad input."""
    own = dict(a.split("=", 1) for a in arguments if a.split("=", 1)[0] in _OWN and "=" in a)
    overrides = [a for a in arguments if a.split("=", 1)[0] not in _OWN]
    rows, equal = [], True
    try:
        count = int(own.get("requests", "10000"))
        names = [own["case"]] if "case" in own else list(CASES)
        for name in names:
            if name not in CASES:
                raise UnknownChoiceError("case", name, CASES)
            skipped = measure(name, count, False, overrides)
            stepped = measure(name, count, True, overrides)
            equal = equal and skipped.pop("record") == stepped.pop("record")
            rows += [skipped, stepped]
    except (ServesimError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if own.get("output.format") == "json":
        print(json.dumps(rows, indent=1))
    else:
        _print(rows)
    if not equal:
        print("error: skipping and stepping gave different records", file=sys.stderr)
    return 0 if equal else 1


def _print(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("case")
    for header in (
        "\nloop",
        "requests\n/s",
        "decisions\n/request",
        "steps\n/decision",
        "preemptions\n/request",
        "prefix\nhits",
        "peak RSS\nMiB",
    ):
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["case"],
            "stepping" if row["stepwise"] else "skipping",
            f"{row['requests_per_s']:,.0f}",
            f"{row['decisions_per_request']:.2f}",
            f"{row['steps_per_decision']:.1f}",
            f"{row['preemptions'] / row['requests']:.2f}",
            f"{row['prefix_hit_rate']:.1%}",
            f"{row['peak_rss_mib']:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
