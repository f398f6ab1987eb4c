"""Small files with the columns of public measurements, and the cases made of them."""

import csv
import json

from validation.cases.__main__ import converter_of


def csv_file(path, *rows):
    """One line per row; the first row names the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def jsonl_file(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def cases_of(source, path):
    return [one.case for one in converter_of(source).convert(path)]


SILICON = {
    "id": "a_row",
    "origin": "aic-gap-analysis",
    "measured": "",
    "backend": "vllm",
    "backend_version": "0.12.0",
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "precision": "",
    "gemm_quant_mode": "",
    "isl": "1024",
    "osl": "128",
    "batch_size": "16.0",
    "concurrency": "16.0",
    "tp_size": "4.0",
    "pp_size": "1.0",
    "silicon_ttft_ms": "100.5",
    "silicon_tpot_ms": "10.25",
}

DATACRUNCH = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 4.0,
    "completed": 1200,
    "duration": 296.0,
    "output_throughput": 2047.0,
    "random_input_len": 1024,
    "random_output_len": 512,
    "random_range_ratio": 0.0,
    "total_input_tokens": 614400,
    "total_output_tokens": 307200,
    "mean_e2e_latency_ms": 12896.0,
    "median_e2e_latency_ms": 12534.0,
    "median_ttft_ms": 106.0,
    "median_itl_ms": 19.0,
}
