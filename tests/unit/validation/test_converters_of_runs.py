"""Converters whose sources have runs: stages, recorded requests, sessions, stamps and logs."""

import json

import pytest
from measurements import cases_of, csv_file, jsonl_file

from servesim.errors import TraceError
from validation.cases.__main__ import converter_of
from validation.cases.workloads import Fixed, LogNormal, OpenLoop, Prefix, Requests, Sessions, Stage

STAGES = {
    "experiment": "An experiment",
    "model": "meta-llama/Llama-2-7b-hf",
    "tp": 1,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 128,
    "stage": 0,
    "rate": 5,
    "duration_s": 600,
    "n_req": 3000,
    "n_fail": 0,
    "n_sys": 11,
    "users": 4,
    "system_prompt_len": 100,
    "question_len": 466,
    "output_len_requested": 201,
    "prompt_len_mean": 591.63,
    "ttft_mean_ms": 30.0,
    "ttft_median_ms": 29.0,
    "ttft_p90_ms": 35.0,
    "ttft_p95_ms": 36.0,
    "ttft_p99_ms": 40.0,
    "e2e_mean_ms": 2030.0,
    "e2e_median_ms": 2020.0,
    "e2e_p90_ms": 2200.0,
    "e2e_p95_ms": 2250.0,
    "e2e_p99_ms": 2300.0,
}
SECOND = STAGES | {"stage": 1, "rate": 10, "ttft_mean_ms": 60.0, "e2e_mean_ms": 5060.0}
RESULTS = {
    "experiment": "10-exp",
    "model": "mistralai/Mixtral-8x7B-v0.1",
    "hardware": "L40S",
    "tp": 2,
    "dp": "",
    "cpu_kv_offload": "True",
    "gpu_mem_util": 0.95,
    "precision": "FP16",
    "max_num_batched_tokens": 1024,
    "stage": -1,
    "rate_rps_inferred": "",
    "question_len": 447,
    "output_len": 101,
    "system_prompt_len": 100,
    "n_system_prompts": 9,
    "users_per_prompt": 5,
    "ttft_mean_ms": 50.0,
    "ttft_p90_ms": 60.0,
    "ttft_p99_ms": 70.0,
    "e2e_mean_ms": 1050.0,
    "e2e_p90_ms": 1100.0,
    "e2e_p99_ms": 1200.0,
}


class TestBlis:
    def test_stages_are_one_run(self, tmp_path):
        (case,) = cases_of("blis", csv_file(tmp_path / "b.csv", SECOND, STAGES))
        assert case.workload == OpenLoop(
            rate_rps=7.5,
            arrival="constant",
            num_requests=9000,
            prompt=Fixed(592),
            output=Fixed(201),
            prefix=Prefix(592, 44),  # 11 system prompts × 4 questions, sent again and again
            stages=(Stage(5.0, 600.0), Stage(10.0, 600.0)),
        )
        assert [stage["tpot_ms"]["mean"] for stage in case.measured_by_stage] == [10.0, 25.0]
        # weighted by 3,000 and 6,000 requests; percentiles of a whole cannot be had from its parts
        assert case.measured == {
            "ttft_ms": {"mean": 50.0},
            "e2e_ms": {"mean": 4050.0},
            "tpot_ms": {"mean": 20.0},
        }
        assert (case.limits.max_num_seqs, case.noise) == (128, 0.02)

    def test_one_stage_is_the_whole_run(self, tmp_path):
        (case,) = cases_of("blis", csv_file(tmp_path / "b.csv", STAGES))
        assert case.measured == case.measured_by_stage[0]
        assert case.measured["ttft_ms"]["p50"] == 29.0

    def test_stage_minus_one_is_the_whole_run(self, tmp_path):
        first = RESULTS | {"stage": 0, "rate_rps_inferred": 8}
        second = RESULTS | {"stage": 1, "rate_rps_inferred": 20, "ttft_mean_ms": 55.0}
        (case,) = cases_of("blis", csv_file(tmp_path / "b.csv", RESULTS, first, second))
        assert case.measured["ttft_ms"] == {"mean": 50.0, "p90": 60.0, "p99": 70.0}
        assert case.workload.stages == (Stage(8.0, 600.0), Stage(20.0, 600.0))
        assert case.workload.prompt == Fixed(573)  # 547, 4.8 % longer in Llama's first tokeniser
        assert (case.hardware, case.limits.gpu_memory_utilization) == ("l40s", 0.95)
        assert any("offloaded" in note for note in case.notes)

    def test_an_experiment_without_a_stage_has_no_rate(self, tmp_path):
        with pytest.raises(TraceError, match=r"b\.csv:2: experiment='10-exp': has no row of a st"):
            cases_of("blis", csv_file(tmp_path / "b.csv", RESULTS))

    def test_a_run_with_failures_is_not_covered(self, tmp_path):
        few, many = (STAGES | {"n_req": 2990, "n_fail": n, "experiment": n} for n in (10, 40))
        kept, dropped = cases_of("blis", csv_file(tmp_path / "b.csv", few, many))
        assert kept.not_covered is None
        assert "failed" in dropped.not_covered

    def test_a_run_of_both_tables_counts_once(self, tmp_path):
        csv_file(tmp_path / "blis_training_inference_perf_stages.csv", STAGES)
        same = {"stage": 0, "rate_rps_inferred": 5, "ttft_mean_ms": 30.0, "e2e_mean_ms": 2030.0}
        (case,) = cases_of("blis", csv_file(tmp_path / "b.csv", RESULTS | same))
        assert "the same run" in case.not_covered


RUN = {
    "run": "poisson run",
    "gpu": "A100-80GB?",
    "tp": 1,
    "model": "Qwen/Qwen3-8B",
    "rate": 2.5,
    "burstiness": 1.0,
    "n": 2,
    "req_s": 2.4,
    "ttft_ms": {"mean": 49.0, "median": 34.0, "std": 40.0, "p99": 230.0},
    "engine": "vLLM 0.10.1.1, max_num_batched_tokens 8192, max_num_seqs 256, prefix caching off",
}
POWERTRACE_REQUESTS = [
    {"input_tokens": 10, "output_tokens": 30, "arrival_s_a100_rate2p5_poisson": 0.0},
    {"input_tokens": 30, "output_tokens": 10, "arrival_s_a100_rate2p5_poisson": 1.5},
]
TURN = {"session": "a", "turn": 0, "input_tokens": 100, "output_tokens": 10}
TURNS = [
    TURN | {"shared_prefix_tokens": 64, "post_gap_s": 0.5, "off_submit_s": 0.0},
    {**TURN, "session": "b", "shared_prefix_tokens": 0, "post_gap_s": 0.1, "off_submit_s": 2.0},
    TURN | {"turn": 1, "shared_prefix_tokens": 96, "post_gap_s": 9.0, "off_submit_s": 1.0},
]


class TestPowertrace:
    @pytest.fixture
    def convert(self, tmp_path):
        def of(*runs):
            csv_file(tmp_path / "qwen3-8b_sharegpt200_seed20260712.csv", *POWERTRACE_REQUESTS)
            csv_file(tmp_path / "qwen3-8b_a100_agentic_prefixcache_on_off.csv", *TURNS)
            path = tmp_path / "measured_summary.json"
            path.write_text(json.dumps(runs))
            return list(converter_of("powertrace").convert(path))

        return of

    def test_recorded_arrivals_are_used(self, convert):
        (done,) = convert(RUN)
        assert done.case.workload == Requests("powertrace_poisson_run.csv")
        assert done.files["powertrace_poisson_run.csv"].splitlines() == [
            *("arrival_s,prompt_tokens,output_tokens", "0,10,30", "1.5,30,10")
        ]
        assert done.case.measured["ttft_ms"] == {"mean": 49.0, "p50": 34.0, "p99": 230.0}
        limits = done.case.limits
        assert (limits.max_num_batched_tokens, limits.max_num_seqs) == (8192, 256)
        assert limits.enable_prefix_caching is False
        assert done.case.engine.version == "0.10.1.1"

    def test_others_are_drawn_again_and_said_so(self, convert):
        (done,) = convert(RUN | {"run": "smooth", "burstiness": 4.0})
        (again,) = convert(RUN | {"run": "smooth", "burstiness": 4.0})
        assert done == again
        rows = done.files["powertrace_smooth.csv"].splitlines()
        assert [row.partition(",")[2] for row in rows[1:]] == ["10,30", "30,10"]
        assert "drawn again" in done.case.notes[0]

    def test_other_requests_have_lengths_of_the_runs_own_mean(self, convert):
        own = {"n": 100, "total_input_tokens": 5000, "total_output_tokens": 4000}
        (done,) = convert(RUN | own)
        # 10 and 30 tokens: mean 20, deviation 10
        assert done.case.workload == OpenLoop(
            2.5, "poisson", 100, LogNormal(50.0, 0.5), LogNormal(40.0, 0.5)
        )

    def test_positions_beyond_the_models_own_are_not_asked_for(self, convert):
        (done,) = convert(RUN | {"max_model_len": 131072})
        assert done.case.limits.max_model_len == 40960
        assert "131072" in done.case.notes[0]

    def test_a_gap_after_a_turn_is_one_before_the_next(self, convert):
        (done,) = convert(RUN | {"run": "agents", "sessions": 2, "prefix_caching": True})
        assert done.case.workload == Sessions("powertrace_agents.csv")
        assert done.case.limits.enable_prefix_caching is True
        assert done.files["powertrace_agents.csv"].splitlines() == [
            "session,turn,start_s,gap_s,prompt_tokens,output_tokens,shared_prefix_tokens",
            "a,1,0.0,0.0,100,10,0",
            "b,1,2.0,0.0,100,10,0",
            "a,2,0.0,0.5,100,10,96",
        ]


STAMPS = [
    {
        "request_id": "r0",
        "input_toks": 20,
        "output_toks": 3,
        "queued_ts": 100.0,
        "first_token_ts": 100.5,
        "last_token_ts": 102.5,
    },
    {
        "request_id": "r1",
        "input_toks": 18,
        "output_toks": 1,
        "queued_ts": 101.0,
        "first_token_ts": 101.25,
        "last_token_ts": 101.25,
    },
]
META = {
    "model": "meta-llama/Llama-3.1-8B",
    "vllm_version": "0.19.0",
    "engine_kwargs": {
        "tensor_parallel_size": 1,
        "data_parallel_size": 2,
        "enable_expert_parallel": True,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "max_model_len": None,
        "dtype": "bfloat16",
    },
}
BLOCKS = [
    {"input_toks": 20, "output_toks": 3, "arrival_time_ns": 5e8, "hash_ids": [0]},
    {"input_toks": 18, "output_toks": 1, "arrival_time_ns": 2e9, "hash_ids": [1]},
]
LOG = (
    """\
vLLM API server version 0.13.0rc2.dev79+g8f8fda261
non-default args: {'model': 'meta-llama/Llama-3.1-8B', 'max_model_len': 2048, 'enforce_eager': True,
""".replace("True,\n", "True, 'enable_prefix_caching': True, 'max_num_seqs': 128}\n")
    + """\
config: dtype=torch.bfloat16, tensor_parallel_size=1, data_parallel_size=1
GPU KV cache size: 221,504 tokens
============ Serving Benchmark Result ============
Successful requests:                     2
Benchmark duration (s):                  4.50
Total input tokens:                      38
Total generated tokens:                  4
Output token throughput (tok/s):         0.89
Mean TTFT (ms):                          110.44
Median TTFT (ms):                        94.62
P99 TTFT (ms):                           300.58
Mean TPOT (ms):                          33.15
Median TPOT (ms):                        32.20
P99 TPOT (ms):                           44.67
Mean ITL (ms):                           31.69
Median ITL (ms):                         29.42
P99 ITL (ms):                            98.28
"""
)


class TestLLMServingSim:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SERVESIM_DATA", str(tmp_path / "absent"))
        folder = tmp_path / "llmservingsim" / "bench" / "examples" / "RTXPRO6000" / "Llama" / "vllm"
        path = jsonl_file(folder / "requests.jsonl", *STAMPS)
        (folder / "meta.json").write_text(json.dumps(META))
        return path

    def test_statistics_are_those_of_the_stamps(self, run):
        ((case, files),) = ((d.case, d.files) for d in converter_of("llmservingsim").convert(run))
        assert case.measured["ttft_ms"]["mean"] == 375.0
        assert case.measured["tpot_ms"]["mean"] == 1000.0  # the reply of one token has none
        assert case.measured["e2e_ms"]["p50"] == 1375.0
        assert case.measured["makespan_s"] == {"value": 2.5}
        assert case.measured["output_tokens_per_s"] == {"value": 1.6}
        assert (case.counted_from, case.dp, case.expert_parallel) == ("queued", 2, True)
        assert case.hardware == "rtx_pro_6000"  # from its place
        assert case.source.file == "bench/examples/RTXPRO6000/Llama/vllm/requests.jsonl"
        assert files[case.workload.file].splitlines()[1:] == ["0,20,3", "1,18,1"]
        assert "nothing is shared" in case.notes[0]

    def test_contents_are_those_of_the_workload_with_these_lengths(self, run):
        folder = run.parents[5] / "workloads"
        jsonl_file(folder / "a.blocks16.jsonl", BLOCKS[0])
        jsonl_file(folder / "b.blocks16.jsonl", *BLOCKS)
        (done,) = converter_of("llmservingsim").convert(run)
        assert done.case.workload.block_size == 16
        assert done.files[done.case.workload.file].splitlines()[1:] == ["0,20,3,[0]", "1,18,1,[1]"]

    def test_the_peers_prediction_is_its_sim_column(self, run):
        summary = run.parents[1] / "validation" / "summary.txt"
        summary.parent.mkdir()
        summary.write_text("Metric vLLM Sim Diff%\nTTFT Mean  7097.2  6815.7  -4.0%\n")
        (case,) = cases_of("llmservingsim", run)
        assert case.peers == {"LLMServingSim": {"ttft_ms": {"mean": 6815.7}}}
        summary.write_text("nothing\n")
        with pytest.raises(TraceError, match=r"summary\.txt: has no row such as"):
            cases_of("llmservingsim", run)

    def test_a_log_has_settings_and_statistics(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SERVESIM_DATA", str(tmp_path / "absent"))
        folder = tmp_path / "figure_7" / "raw_data" / "PC"
        jsonl_file(tmp_path / "dataset" / "a.blocks16.jsonl", *BLOCKS)
        config = tmp_path / "figure_7" / "config" / "PC_config.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"nodes": [{"instances": [{"hardware": "A6000"}]}]}))
        hits, queries = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
        csv_file(folder / "kv_metrics.csv", {hits: 0, queries: 20}, {hits: 16, queries: 38})
        log = folder / "run_vllm.txt"
        log.write_text(LOG)
        (done,) = converter_of("llmservingsim").convert(log)
        case, limits = done.case, done.case.limits
        assert (case.hardware, case.engine.version) == ("rtx_a6000", "0.13.0rc2")
        assert (limits.kv_cache_tokens, limits.max_num_seqs, limits.max_model_len) == (
            *(221_504, 128),
            2048,
        )
        assert limits.enforce_eager
        assert limits.enable_prefix_caching
        assert case.measured["prefix_hit_tokens"] == {"value": 16.0}
        assert case.measured["tpot_ms"] == {"mean": 33.15, "p50": 32.2, "p99": 44.67}
        assert done.files[case.workload.file].splitlines()[1:] == ["0.5,20,3,[0]", "2,18,1,[1]"]
        log.write_text(LOG.replace("P99 ITL", "P98 ITL"))
        with pytest.raises(TraceError, match=r"does not end with the benchmark's `P99 ITL \(ms\)"):
            cases_of("llmservingsim", log)
