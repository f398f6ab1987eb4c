"""Converters whose sources have a row per point: closed loops, all at once, static batches."""

import pytest
from measurements import DATACRUNCH, SILICON, cases_of, csv_file, jsonl_file

from servesim.errors import TraceError
from validation.cases.case import Limits
from validation.cases.converters.parts import silicon_trtllm
from validation.cases.workloads import ClosedLoop, Fixed, LogNormal, OpenLoop, StaticBatch, Uniform

INFERENCEMAX = SILICON | {
    "origin": "inferencemax-db",
    "backend_version": "",
    "model_path": "meta-llama/Llama-3.1-70B",
    "precision": "fp8",
}


class TestSilicon:
    def test_a_row_is_a_closed_loop(self, tmp_path):
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", SILICON))
        assert case.name == "silicon_h100_sxm_vllm_0.12.0_qwen3_32b_tp4_bf16_1024x128_c16"
        assert case.workload == ClosedLoop(16, 160, Fixed(1024), Fixed(128))
        assert case.measured == {
            "ttft_ms": {"unspecified": 100.5},
            "tpot_ms": {"unspecified": 10.25},
        }
        assert (case.tp, case.dtype, case.kv_dtype, case.engine.version) == (
            *(4, "bf16", "bf16"),
            "0.12.0",
        )
        assert case.counted_from == "sent"
        assert case.not_covered is None

    @pytest.mark.parametrize(
        ("row", "limits"),
        [
            (
                {"backend": "vllm", "isl": "4096"},
                Limits(
                    max_num_batched_tokens=4096 - 16 + 16,  # users
                    gpu_memory_utilization=0.85,
                    enable_prefix_caching=False,
                ),
            ),
            (
                {"backend": "vllm", "isl": "8", "concurrency": "64"},
                Limits(
                    max_num_batched_tokens=1 + 64,
                    gpu_memory_utilization=0.85,
                    enable_prefix_caching=False,
                ),
            ),
            ({"backend": "sglang"}, Limits(gpu_memory_utilization=0.7925)),
            ({"backend": "trtllm"}, Limits(max_num_batched_tokens=2 * 1024 + 16)),
            ({"backend": "vllm"} | INFERENCEMAX, Limits(enable_prefix_caching=False)),
            (INFERENCEMAX | {"backend": "sglang"}, Limits(enable_prefix_caching=False)),
            (INFERENCEMAX | {"backend": "trtllm"}, Limits(max_num_batched_tokens=2 * 1024 + 16)),
        ],
    )
    def test_limits_that_are_not_recorded_go_by_origin_and_engine(self, tmp_path, row, limits):
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", SILICON | row))
        assert case.limits == limits

    def test_what_was_taken_is_in_the_notes(self, tmp_path):
        rows = [SILICON, SILICON | {"backend": "sglang"}, SILICON | {"backend": "trtllm"}]
        taken = [
            "".join(n for n in case.notes if "is not recorded" in n)
            for case in cases_of("silicon", csv_file(tmp_path / "s.csv", *rows))
        ]
        assert "0.85 taken" in taken[0]
        assert "max_num_batched_tokens" in taken[0]
        assert "0.7925 taken" in taken[1]
        assert "max_num_batched_tokens" not in taken[1]
        assert "share" not in taken[2]
        assert "10 per user taken" in taken[2]

    def test_inferencemax_draws_lengths_and_keeps_its_release_to_itself(self, tmp_path):
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", INFERENCEMAX))
        assert case.workload == ClosedLoop(16, 160, Uniform(819, 1024), Uniform(102, 128))
        assert case.engine.version is None
        assert (case.dtype, case.kv_dtype) == ("fp8", "fp8")
        assert case.notes == (
            "no prefix cache, as InferenceMAX starts its servers",
            "the engine's release is not recorded",
        )
        assert case.counted_from == "sent"

    @pytest.mark.parametrize(
        ("day", "release"),
        [
            ("2025-10-29", "0.11"),
            ("2025-10-02", "0.11"),
            ("2025-10-01", "0.10"),
            ("2024-01-01", None),
        ],
    )
    def test_a_release_that_is_not_recorded_is_the_newest_of_the_day(self, tmp_path, day, release):
        row = INFERENCEMAX | {"measured": day}
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", row))
        assert case.engine.version == release

    def test_a_name_in_fp8_says_the_precision_that_the_row_does_not(self, tmp_path):
        row = SILICON | {"model_path": "nvidia/Llama-3.1-8B-Instruct-FP8"}
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", row))
        assert (case.model, case.dtype, case.kv_dtype) == ("llama3.1_8b", "fp8", "fp8")

    def test_block_quantised_weights_keep_a_16_bit_cache(self, tmp_path):
        row = SILICON | {"backend": "sglang", "precision": "", "gemm_quant_mode": "fp8_block"}
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", row))
        assert (case.dtype, case.kv_dtype) == ("fp8", "bf16")

    @pytest.mark.parametrize(("isl", "mixed"), [("1024", None), ("4096", None), ("8000", True)])
    def test_sglang_decodes_in_prefill_batches_where_lengths_are_round_thousands(
        self, tmp_path, isl, mixed
    ):
        row = SILICON | {"backend": "sglang", "backend_version": "0.5.6.post2", "isl": isl}
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", row))
        assert case.limits == Limits(enable_mixed_chunk=mixed, gpu_memory_utilization=0.7925)
        assert any("enable_mixed_chunk" in note for note in case.notes) == bool(mixed)
        assert case.counted_from == "sent"

    def test_inferencemax_says_nothing_of_sglangs_batches(self, tmp_path):
        row = INFERENCEMAX | {"backend": "sglang", "isl": "8000"}
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", row))
        assert case.limits == Limits(enable_prefix_caching=False)

    def test_an_engine_a_model_or_a_gpu_without_a_yaml_is_not_covered(self, tmp_path):
        rows = [
            SILICON | {"backend": "lmdeploy"},
            SILICON | {"model_path": "nobody/Unheard-1B"},
            SILICON | {"system": "h900"},
            SILICON | {"tp_size": "7"},
        ]
        reasons = [c.not_covered for c in cases_of("silicon", csv_file(tmp_path / "s.csv", *rows))]
        assert reasons == [
            "no scheduler profile of lmdeploy",
            "no model nobody/Unheard-1B in conf/model",
            "no GPU h900 in conf/hardware",
            "tp=7 does not split the heads of qwen3_32b",
        ]

    def test_tensorrt_llm_takes_two_prompts_and_a_token_per_user(self, tmp_path):
        rows = [SILICON | {"backend": "trtllm"}, INFERENCEMAX | {"backend": "trtllm"}]
        for case in cases_of("silicon", csv_file(tmp_path / "s.csv", *rows)):
            assert case.not_covered is None
            assert case.limits == Limits(max_num_batched_tokens=2 * 1024 + 16)
            assert silicon_trtllm.NOTE in case.notes

    def test_tensorrt_llm_keeps_an_fp8_cache_beside_fp8_weights(self, tmp_path):
        row = SILICON | {"backend": "trtllm"}
        rows = [row, row | {"precision": "fp8"}, SILICON | {"precision": "fp8"}]
        cases = cases_of("silicon", csv_file(tmp_path / "s.csv", *rows))
        assert [case.kv_dtype for case in cases] == ["bf16", "fp8", "bf16"]

    def test_runs_whose_first_token_comes_with_the_20th_are_doubtful(self, tmp_path):
        row = INFERENCEMAX | {"backend": "trtllm", "osl": "1024", "tp_size": "4"}
        rows = [
            row,
            row | {"tp_size": "8"},
            row | {"osl": "8192"},
            row | {"origin": "aic-gap-analysis"},
        ]
        cases = cases_of("silicon", csv_file(tmp_path / "s.csv", *rows))
        assert [silicon_trtllm.STREAMED in case.notes for case in cases] == [True, *3 * [False]]

    def test_a_ttft_that_more_users_would_shorten_is_doubtful(self, tmp_path):
        row = SILICON | {"backend": "trtllm", "silicon_ttft_ms": "110"}
        few = {"concurrency": "8", "batch_size": "8"}
        rows = [row, row | few | {"silicon_ttft_ms": "122"}, row | few | {"osl": "256"}]
        rows += [row | few | {"tp_size": "8", "silicon_ttft_ms": "120"}, row | {"tp_size": "8"}]
        cases = cases_of("silicon", csv_file(tmp_path / "s.csv", *rows))
        doubts = [silicon_trtllm.WITH_MORE_USERS in case.notes for case in cases]
        assert doubts == [False, True, False, False, False]

    def test_a_row_that_beats_its_gpu_is_doubtful(self, tmp_path):
        # 16 users × 1,152 tokens × 2 × 32.8 G FLOP in 101.5 + 127 × 0.1 ms: 10.6 of 4 × 0.99 PFLOPS
        row = SILICON | {"silicon_tpot_ms": "0.1"}
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", row))
        assert (
            "doubtful: implies more of the GPU's peak FLOPS than kernels reach: 270% in"
            in case.notes[-1]
        )

    def test_so_are_the_other_rows_of_its_run(self, tmp_path):
        rows = [SILICON, SILICON | {"silicon_tpot_ms": "0.1"}, SILICON | {"system": "h200_sxm"}]
        first, _, elsewhere = cases_of("silicon", csv_file(tmp_path / "s.csv", *rows))
        assert any("doubtful: another row" in note for note in first.notes)
        assert not any("doubtful" in note for note in elsewhere.notes)

    def test_a_batch_beside_another_concurrency_is_doubtful(self, tmp_path):
        row = SILICON | {"batch_size": "2"}
        (case,) = cases_of("silicon", csv_file(tmp_path / "s.csv", row))
        assert "doubtful: batch_size 2 beside concurrency 16" in case.notes


GPULLM = {
    "model": "qwen-2.5-7b-instruct",
    "phase": "output",
    "run": "_200__1_100",
    "max_num_seqs": 200,
    "num_prompts": 4096,
    "duration_s": 40.0,
    "input_tokens_per_req": 4.0,
    "output_tokens_per_req": 100.02,
    "output_throughput": 10240.0,
    "kv_cache_tokens": 334816,
    **{f"{s}_{m}_ms": 5.0 for m in ("ttft", "itl") for s in ("mean", "median", "p99")},
    "mean_tpot_ms": 17.0,
}
BENCHMARK = {
    "num_prompts": 4096,
    "duration": 40.0,
    "completed": 4096,
    "total_input_tokens": 16384,
    "total_output_tokens": 409600,
    "output_throughput": 10240.0,
    **{f"{s}_{m}_ms": 6.0 for m in ("ttft", "tpot", "itl") for s in ("mean", "median", "p99")},
}


class TestGpullm:
    def test_all_requests_come_at_once(self, tmp_path):
        (case,) = cases_of("gpullm", csv_file(tmp_path / "g.csv", GPULLM))
        assert case.workload == OpenLoop(float("inf"), "constant", 4096, Fixed(4), Fixed(100))
        assert (case.model, case.hardware) == ("qwen2.5_7b", "h100_64gb_hbm2")
        assert (case.limits.kv_cache_tokens, case.limits.max_num_seqs) == (334_816, 200)
        assert case.measured["tpot_ms"] == {"mean": 17.0}

    def test_the_benchmarks_own_file_adds_percentiles(self, tmp_path):
        path = csv_file(tmp_path / "g.csv", GPULLM | {"kv_cache_tokens": ""})
        raw = tmp_path / "raw_json" / "qwen-2.5-7b-instruct__output___200__1_100.json"
        jsonl_file(raw, BENCHMARK)
        (case,) = cases_of("gpullm", path)
        assert case.measured["tpot_ms"] == {"mean": 17.0, "p50": 6.0, "p99": 6.0}
        assert case.limits.kv_cache_tokens is None
        (alone,) = cases_of("gpullm", raw)
        assert (alone.name, alone.limits.max_num_seqs) == (case.name, 200)
        assert alone.workload == case.workload

    def test_a_reply_of_one_token_has_no_tpot(self, tmp_path):
        row = GPULLM | {"output_tokens_per_req": 1.0}
        (case,) = cases_of("gpullm", csv_file(tmp_path / "g.csv", row))
        assert set(case.measured) == {"ttft_ms", "makespan_s", "output_tokens_per_s"}


SPECBENCH = {
    "round": "Round-2",
    "method": "7B-nospec",
    "task": "Task_News2HighLight",
    "subtask": "cnn_dailymail_0.5k",
    "model": "Qwen2.5-7B-Instruct",
    "num_spec_tokens": -1,
    "max_concurrency": 8,
    "num_prompts": 96,
    "duration_s": 20.0,
    "in_tokens": 434.2,
    "out_tokens": 64.0,
    "output_throughput": 300.0,
    **{f"{s}_{m}_ms": 7.0 for m in ("ttft", "tpot", "itl") for s in ("mean", "median", "p99")},
}


def test_specbench_covers_what_runs_without_speculation(tmp_path):
    rows = [
        SPECBENCH,
        SPECBENCH | {"method": "vanilla", "subtask": "spec-bench-qa"},
        SPECBENCH | {"subtask": "thucnews_0.5k"},
        SPECBENCH | {"subtask": "cnn_dailymail_8k", "out_tokens": 470.0},
        SPECBENCH | {"method": "eagle", "num_spec_tokens": 2},
        SPECBENCH | {"method": "7B-int4-nospec", "model": "Qwen2.5-7B-Instruct-GPTQ-Int4"},
    ]
    path = csv_file(tmp_path / "s.csv", *rows)
    news, talk, chinese, below_cap, spec, four_bits = cases_of("specbench", path)
    assert news.workload == ClosedLoop(8, 96, Fixed(434), Fixed(64))
    assert talk.workload.prompt == LogNormal(434.2, 1.1)
    assert talk.workload.output == LogNormal(64.0, 1.1, 1024)
    assert chinese.workload == ClosedLoop(8, 96, LogNormal(434.2, 0.15), LogNormal(64.0, 0.15))
    assert below_cap.workload.output == LogNormal(470.0, 0.15)
    assert (news.not_covered, talk.not_covered) == (None, None)
    assert "speculation" in spec.not_covered
    assert "4-bit" in four_bits.not_covered


class TestDatacrunch:
    def test_lengths_are_uniform_from_the_ratio(self, tmp_path):
        half = DATACRUNCH | {"random_range_ratio": 0.5, "request_rate": float("inf")}
        path = jsonl_file(tmp_path / "llama_3_3_70b_online.jsonl", DATACRUNCH, half)
        whole, upper = cases_of("datacrunch", path)
        assert whole.workload == OpenLoop(4.0, "poisson", 1200, Uniform(1, 1024), Uniform(1, 512))
        assert (whole.model, whole.tp) == ("llama3.1_70b", 4)
        assert whole.limits.enable_prefix_caching is False
        assert upper.workload.prompt == Uniform(512, 1024)
        assert upper.workload.rate_rps == float("inf")

    def test_unrecorded_lengths_are_not_covered(self, tmp_path):
        row = DATACRUNCH | {"dataset_name": "sharegpt"}
        (case,) = cases_of("datacrunch", jsonl_file(tmp_path / "llama_3_3_70b.jsonl", row))
        assert "sharegpt" in case.not_covered

    def test_a_file_that_names_no_known_model_is_refused(self, tmp_path):
        with pytest.raises(TraceError, match="must begin with llama_3_3_70b or llama_405b"):
            cases_of("datacrunch", jsonl_file(tmp_path / "other.jsonl", DATACRUNCH))


ARGONNE = {
    "Hardware": "Nvidia A100 GPU",
    "Num of Hardware": 4,
    "Framework": "vLLM",
    "Model": "meta-llama/Llama-2-70b-hf",
    "Input Output Length": 128,
    "Batch Size": 16,
    "Latency": 2.5,
    "Throughput": 1638.4,
}


def test_argonnes_rows_are_static_batches(tmp_path):
    others = (
        {"Framework": "llama.cpp"},
        {"Hardware": "Intel PVC GPU"},
        {"Hardware": "AMD MI250 GPU"},
    )
    rows = [ARGONNE, *(ARGONNE | other for other in others)]
    known, engine, gpu, card = cases_of("argonne", csv_file(tmp_path / "a.csv", *rows))
    assert known.workload == StaticBatch(16, Fixed(128), Fixed(128))
    assert known.measured == {"makespan_s": {"value": 2.5}, "total_tokens_per_s": {"value": 1638.4}}
    assert (known.hardware, known.tp, known.not_covered) == ("a100_40gb_sxm", 4, None)
    assert known.engine.version == "0.6.3"
    assert "0.6.3 taken" in known.notes[0]
    assert engine.engine.version is None
    assert "llama.cpp" in engine.not_covered
    assert "Intel PVC" in gpu.not_covered
    assert "two GPUs" in card.not_covered


def test_a_batch_that_takes_as_long_as_twice_its_tokens_is_doubtful(tmp_path):
    longer = ARGONNE | {"Input Output Length": 256, "Latency": 3.0}
    other = ARGONNE | {"Batch Size": 32, "Latency": 2.9}
    path = csv_file(tmp_path / "a.csv", ARGONNE, longer, other)
    notes = [case.notes[1:] for case in cases_of("argonne", path)]
    assert notes == [("doubtful: 128 tokens took 2.5 s, 256 3 s",), (), ()]
