"""`python -m experiments.engines_compared [experiment=NAME] [dir=DIR] [setting=value ...]`.

Runs the sweep of `conf/experiment/NAME.yaml`, prints the ranking and writes the figure into the
sweep's directory. `rows=DIR/rows.csv` draws and ranks a sweep that was run before.
"""

import sys

from experiments.compare import Column, Comparison, Panel, main

ENGINES = Comparison(
    experiment="engines_compared",
    choice="scheduler",
    first="vllm_v1_0.33",
    columns=(
        Column("ttft_p50_s", "TTFT p50\ns", ".2f"),
        Column("ttft_p99_s", "TTFT p99\ns", ".2f"),
        Column("tpot_mean_s", "TPOT\nms", ".1f", 1e3),
        Column("itl_p99_s", "ITL p99\nms", ".0f", 1e3),
        Column("goodput_rps", "goodput\nreq/s", ".2f"),
        Column("output_throughput_tokens_per_s", "output\ntok/s", ".0f"),
        Column("kv_waste", "KV\nunused", ".1%"),
    ),
    panels=(
        Panel("ttft_p50_s", "TTFT p50 (s)", logarithmic=True),
        Panel("itl_p99_s", "ITL p99 (ms)", 1e3),
        Panel("goodput_rps", "goodput (requests/s)"),
        Panel("kv_waste", "held KV unused (%)", 1e2),
    ),
    metrics="[latency,goodput,overload,throughput,kv_waste]",
    goodput_range=False,
)

if __name__ == "__main__":
    sys.exit(main(ENGINES, sys.argv[1:]))
