"""`python -m experiments.policy_comparison [experiment=NAME] [dir=DIR] [setting=value ...]`.

Runs the sweep of `conf/experiment/NAME.yaml`, prints the ranking and writes the figure into the
sweep's directory. `rows=DIR/rows.csv` draws and ranks a sweep that was run before.
"""

import sys

from experiments.compare import Column, Comparison, Panel, main

ORDERS = Comparison(
    experiment="policy_comparison",
    choice="order",
    first="fcfs",
    columns=(
        Column("ttft_p50_s", "TTFT p50\ns", ".2f"),
        Column("ttft_p99_s", "TTFT p99\ns", ".2f"),
        Column("tpot_mean_s", "TPOT\nms", ".1f", 1e3),
        Column("goodput_rps", "goodput\nreq/s", ".2f"),
        Column("slo_attainment", "within\nSLO", ".0%"),
    ),
    panels=(
        Panel("ttft_p50_s", "TTFT p50 (s)", logarithmic=True),
        Panel("ttft_p99_s", "TTFT p99 (s)", logarithmic=True),
        Panel("tpot_mean_s", "TPOT mean (ms)", 1e3),
        Panel("goodput_rps", "goodput (requests/s)"),
    ),
    metrics="[latency,goodput,overload]",
)

if __name__ == "__main__":
    sys.exit(main(ORDERS, sys.argv[1:]))
