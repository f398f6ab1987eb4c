"""Tuning of host time and front end: what was put in is found again."""

import math
from dataclasses import replace

import pytest
import yaml

from servesim.app.api import setup_from
from servesim.app.paths import conf_dir
from servesim.app.run import execute
from servesim.errors import ServesimError, TraceError, UnknownChoiceError
from validation.calibrate import __main__ as command
from validation.calibrate import apply, book
from validation.calibrate.parameters import chosen, laid_over, part
from validation.calibrate.runs import Residual, has_room, residuals_of, shortened
from validation.calibrate.search import search
from validation.cases.case import Case, Engine, Source
from validation.cases.format import write_case
from validation.cases.workloads import ClosedLoop, Fixed, OpenLoop, Stage
from validation.compare.statistics import of_record
from validation.score.settings import settings_of

FREE = chosen(["host.exposed_us", "front_end.queue_us"])
TRUTH = {"host.exposed_us": 900.0, "front_end.queue_us": 7000.0}


def case(concurrency: int = 2, **changes: object) -> Case:
    made = Case(
        name=f"by hand {concurrency}",
        source=Source("hand", "example.org", "0", None, "runs.csv"),
        engine=Engine("vllm", "0.12.0"),
        model="llama3.1_8b",
        hardware="h100_sxm",
        workload=ClosedLoop(concurrency, 4 * concurrency, Fixed(300), Fixed(20)),
        measured={"ttft_ms": {"mean": 1.0}, "tpot_ms": {"mean": 1.0}},
        counted_from="sent",
    )
    return replace(made, **changes)


def as_if_measured(one: Case, folder) -> Case:
    """The case with what it would be with TRUTH."""
    setup = laid_over(setup_from(*settings_of(one, folder).overrides), TRUTH, at_front_end=True)
    figures = of_record(execute(setup).record)
    measured = {m: {"mean": figures.value(m, "mean")} for m in ("ttft_ms", "tpot_ms")}
    return replace(one, measured=measured)


class TestParameters:
    def test_host_and_front_end_are_laid_over(self, tmp_path):
        setup = setup_from(*settings_of(case(), tmp_path).overrides)
        there = laid_over(setup, {**TRUTH, "front_end.queue_us_per_prompt_token": 2.0}, True)
        assert there.cost.host["exposed_us"] == 900.0
        assert there.cost.host["us"] == setup.cost.host["us"]
        assert (there.front_end.queue_s, there.front_end.queue_s_per_prompt_token) == (0.007, 2e-6)
        assert laid_over(setup, TRUTH, at_front_end=False).front_end == setup.front_end
        assert there.cost.all_reduce_share == setup.cost.all_reduce_share
        assert laid_over(setup, {"all_reduce_share": 0.7}, True).cost.all_reduce_share == 0.7

    def test_only_kernel_tables_have_a_host_to_be_set(self):
        with pytest.raises(ServesimError, match="kernel tables"):
            laid_over(setup_from("cost=roofline"), TRUTH, at_front_end=True)

    def test_an_unknown_one_is_named(self):
        with pytest.raises(UnknownChoiceError, match=r"host\.uss.*host\.us"):
            chosen(["host.uss"])

    def test_parts(self):
        assert part("front_end", TRUTH) == {"queue_us": 7000.0}


class TestRuns:
    def test_residuals_are_log_ratios(self, tmp_path):
        one = as_if_measured(case(), tmp_path)
        assert all(r.log_ratio == 0 for r in residuals_of(one, tmp_path, TRUTH))
        longer = {**TRUTH, "host.exposed_us": 1900.0}
        (tpot,) = (r for r in residuals_of(one, tmp_path, longer) if r.metric == "tpot_ms")
        measured = one.measured["tpot_ms"]["mean"]
        # one millisecond more per step, and a step per token; prefills of the other fall within
        assert math.exp(tpot.log_ratio) * measured == pytest.approx(measured + 1.0, rel=0.02)

    def test_room_is_that_of_the_cache(self, tmp_path):
        assert has_room(case(), tmp_path)
        few = replace(case().limits, num_gpu_blocks=30)
        assert not has_room(case(limits=few), tmp_path)

    def test_stages_are_cut_to_a_minute(self):
        stages = (Stage(2.0, 600.0), Stage(4.0, 30.0))
        load = OpenLoop(2.1, "constant", 1320, Fixed(10), Fixed(2), stages=stages)
        one = case(workload=load, measured_by_stage=({}, {}))
        short = shortened(one)
        assert short.workload.stages == (Stage(2.0, 60.0), Stage(4.0, 30.0))
        assert short.workload.num_requests == 240
        assert short.workload.rate_rps == pytest.approx(240 / 90)
        assert shortened(case()) == case()


def test_the_search_finds_the_lowest_loss():
    """Of two lines that meet where x = 1,000 and y = 2,000."""

    def evaluate(values):
        x, y = values["host.exposed_us"] / 1e3, values["front_end.queue_us"] / 1e3
        return [Residual("a", "s", "m", x - 1), Residual("b", "s", "m", (y - 2) * 0.3)]

    found = search(FREE, evaluate)
    assert found.values == pytest.approx(
        {"host.exposed_us": 1000.0, "front_end.queue_us": 2000.0}, rel=1e-3
    )
    assert max(abs(residual.log_ratio) for residual in found.residuals) < 1e-3


class TestCommand:
    def test_what_was_put_in_is_found(self, tmp_path, capsys, monkeypatch):
        for users in (1, 2, 3, 4, 6):
            write_case(as_if_measured(case(users, name=f"c{users}"), tmp_path), tmp_path)
        written = tmp_path / "calibration.yaml"
        monkeypatch.setattr(book, "BOOK", written)
        monkeypatch.setattr(book.write, "__defaults__", (written,))
        monkeypatch.setattr(command, "conf_dir", lambda: tmp_path)
        (tmp_path / "front_end").mkdir()
        free = "free=host.exposed_us,front_end.queue_us"
        arguments = [f"cases={tmp_path}", "gpu=h100_sxm", "engine=vllm", free, "jobs=1"]
        assert command.main([*arguments, "share=0.5", "write=true"]) == 0
        entry = yaml.safe_load(written.read_text())["h100_sxm"]["vllm"]
        assert entry["host"]["exposed_us"] == pytest.approx(900, rel=0.05)
        assert entry["front_end"]["queue_us"] == pytest.approx(7000, rel=0.05)
        assert entry["parameters"] == 2
        assert entry["error"]["tuned"]["tpot_ms"]["median"] < 0.01
        assert entry["error"]["held_out"]["tpot_ms"]["cases"] >= 1
        option = yaml.safe_load((tmp_path / "front_end" / "vllm_h100_sxm.yaml").read_text())
        assert option["queue_s"] == pytest.approx(0.007, rel=0.05)
        assert "held out" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["gpu=h100_sxm", "engine=vllm"], "cases must be given"),
            (["cases=nowhere", "gpu=h100_sxm", "engine=vllm"], "no such folder"),
            (["cases=.", "gpu=h100_sxm", "engin=vllm"], "engine"),
            (["cases=.", "gpu=h100_sxm", "engine=vllm", "share=2"], "at most 1"),
            (["cases=.", "gpu=h100_sxm", "engine=vllm", "free=host"], "host.us"),
            (["cases"], "option=value"),
        ],
    )
    def test_bad_input_is_one_line(self, arguments, words, capsys):
        assert command.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert words in error
        assert len(error.splitlines()) == 1


def test_the_book_keeps_what_it_holds(tmp_path):
    path = tmp_path / "calibration.yaml"
    book.write("a100", "vllm", {"host": {"us": 1.0}}, path)
    book.write("a100", "sglang", {"host": {"us": 2.0}}, path)
    assert book.read(path) == {
        "a100": {"sglang": {"host": {"us": 2.0}}, "vllm": {"host": {"us": 1.0}}}
    }
    path.write_text("- 1")
    with pytest.raises(TraceError, match="must map GPUs"):
        book.read(path)


def test_too_few_cases_for_the_parameters(tmp_path, capsys):
    write_case(case(name="only"), tmp_path)
    arguments = [f"cases={tmp_path}", "gpu=h100_sxm", "engine=vllm", "jobs=1", "share=1"]
    assert command.main(arguments) == 2
    assert "1 cases for 3 parameters" in capsys.readouterr().err


def test_the_book_is_written_into_the_costs(tmp_path, capsys):
    path = tmp_path / "calibration.yaml"
    tuned = {"levels": [0.1, 0.9], "decode": [-0.1, 0.1], "prefill": [-0.2, 0.2]}
    entry = {"host": {"us_per_seq": 7.0}, "fitted_from": "here", "residuals": tuned}
    entry["all_reduce_share"] = 0.75
    book.write("h100_sxm", "vllm", entry, path)
    cost = (conf_dir() / "cost" / "kernels" / "vllm_h100_sxm_llama3.1_8b_tp1_bf16.yaml").read_text()
    text = apply.applied(cost, path)
    before, after = yaml.safe_load(cost), yaml.safe_load(text)
    assert after["host"]["us_per_seq"] == 7.0
    assert after["host"]["exposed_us"] == 0.0
    assert after["residuals"] == tuned
    assert after["all_reduce_share"] == 0.75
    assert after["source"]["host"] == "calibration.yaml, h100_sxm.vllm: here"
    assert after["tables"] == before["tables"]
    assert text.splitlines()[0] == cost.splitlines()[0]
    assert apply.applied(text, path) == text
    assert apply.main([f"folder={tmp_path / 'none'}"]) == 2
    assert "no *.yaml in it" in capsys.readouterr().err


def test_the_costs_hold_what_the_book_says():
    of_vllm, of_sglang = "vllm_h100_sxm_llama3.1_8b_tp1_bf16", "sglang_h100_sxm_qwen3_32b_tp4_bf16"
    names = (of_vllm, of_sglang, "trtllm_h100_sxm_qwen3_32b_tp4_fp8_kv_fp8")
    for name in names:
        text = (conf_dir() / "cost" / "kernels" / f"{name}.yaml").read_text()
        assert yaml.safe_load(apply.applied(text, book.BOOK)) == yaml.safe_load(text)
