"""From cases to settings of servesim."""

import math
from pathlib import Path

import pytest
import yaml

from servesim.app.api import setup_from
from servesim.errors import MissingDataError, ServesimError, SettingError, UnknownChoiceError
from tests.unit.validation.measured_cases import case
from validation.cases.case import Engine, Limits
from validation.cases.workloads import (
    ClosedLoop,
    Fixed,
    LogNormal,
    OpenLoop,
    Prefix,
    Requests,
    Stage,
    StaticBatch,
    Uniform,
)
from validation.compare.statistics import ServedRequest
from validation.fit.kernels.calibration import own_host_of
from validation.score.costs import Cost, cost_for
from validation.score.engines import profile_for, release_of
from validation.score.load import offered
from validation.score.names import option_of, published_name
from validation.score.settings import settings_of
from validation.score.workloads import mean_rate_rps, shown, workload_overrides

HERE = Path()


@pytest.mark.parametrize(
    ("engine", "version", "option", "release", "ahead"),
    [
        ("vllm", "0.6.6.post1", "vllm_v0", None, None),
        ("vllm", "0.7.3", "vllm_v0", None, None),
        ("vllm", "0.8.5", "vllm_v1", "0.8", False),
        ("vllm", "0.13rc2", "vllm_v1", "0.13", False),
        ("vllm", "v0.14.0", "vllm_v1", "0.14", True),
        ("vllm", "0.33.0", "vllm_v1", "0.33", True),
        ("vllm", None, "vllm_v1", "0.33", True),
        ("sglang", "0.3.6", "sglang", None, False),
        ("sglang", "0.5.6.post2", "sglang", None, True),
        ("sglang", None, "sglang", None, True),
        ("trtllm", "1.0.0rc3", "trtllm", None, True),
        ("trtllm", None, "trtllm", None, True),
        ("hf", "5.23.0", "hf", None, None),
    ],
)
def test_engine_and_release_choose_the_scheduler(engine, version, option, release, ahead):
    profile = profile_for(engine, version)
    assert profile.option == option
    wanted = () if release is None else (f'scheduler.release="{release}"',)
    assert profile.overrides == wanted
    on, off = {
        "vllm_v1": ("scheduler.async_scheduling=true", "scheduler.async_scheduling=false"),
        "sglang": (
            "scheduler.disable_overlap_schedule=false",
            "scheduler.disable_overlap_schedule=true",
        ),
        "trtllm": (
            "scheduler.disable_overlap_scheduler=false",
            "scheduler.disable_overlap_scheduler=true",
        ),
    }.get(option, ("", ""))
    assert profile.scheduling(None) == (() if ahead is None else (on if ahead else off,))


def test_a_case_may_say_that_steps_are_planned_ahead_or_not():
    assert profile_for("vllm", "0.15").scheduling(False) == ("scheduler.async_scheduling=false",)
    assert profile_for("vllm", "0.11").scheduling(True) == ("scheduler.async_scheduling=true",)
    with pytest.raises(SettingError, match="async_scheduling"):
        profile_for("hf", None).scheduling(True)


def test_mixed_batches_are_sglangs_alone():
    limits = Limits(enable_mixed_chunk=True)
    asked = "scheduler.enable_mixed_chunk=true"
    assert (
        asked in settings_of(case(engine=Engine("sglang", "0.5.6"), limits=limits), HERE).overrides
    )
    others = settings_of(case(engine=Engine("vllm", "0.11"), limits=limits), HERE).overrides
    assert not any("mixed" in setting for setting in others)


def test_a_release_that_is_no_profile_of_its_own_is_noted():
    assert profile_for("vllm", "0.15.0").notes == ()
    assert profile_for("vllm", "0.13").notes == ("vLLM 0.13 is played by the rules of 0.15",)
    assert "not recorded" in profile_for("vllm", None).notes[0]


def test_unknown_engines_and_versions_are_named():
    with pytest.raises(UnknownChoiceError, match="did you mean 'vllm'"):
        profile_for("vlm", "0.11")
    with pytest.raises(SettingError, match=r"engine\.version='main'"):
        profile_for("vllm", "main")
    assert release_of("0.10.1.1") == (0, 10)


def test_models_and_gpus_by_option_or_published_name():
    assert option_of("model", "meta-llama/Llama-3.1-8B") == "llama3.1_8b"
    assert option_of("hardware", "h100_sxm") == "h100_sxm"
    assert published_name("hardware", "h100_sxm") == "H100 SXM5"
    with pytest.raises(UnknownChoiceError, match=r"did you mean 'llama3\.1_8b'"):
        option_of("model", "llama3.1-8b")


ASKED = {"model": "m", "gpu": "g", "tp": 2, "dtype": "fp8", "kv_dtype": "bf16", "engine": "vllm"}


def write_cost(folder, name, kind, version, **changes):
    target = {"kernels": "servesim.cost.kernels.Kernels", "fitted": "servesim.cost.fitted.Fitted"}
    tree = {
        "_target_": target[kind],
        "fitted_on": {**ASKED, **changes},
        "source": {"engine_version": version},
        "tables": {"dense": {"tokens": [1, 2], "us": [1.0, 2.0]}},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def test_kernel_tables_come_first_then_the_nearest_release(tmp_path):
    write_cost(tmp_path, "a", "fitted", "0.14.0")
    write_cost(tmp_path, "b", "kernels", "0.19.0")
    write_cost(tmp_path, "c", "kernels", "0.24.0")
    write_cost(tmp_path, "d", "kernels", "0.15.0", tp=4)
    (tmp_path / "more").mkdir()
    write_cost(tmp_path / "more", "e", "kernels", "0.9.1")
    (tmp_path / "roofline.yaml").write_text("_target_: servesim.cost.roofline.Roofline\n")
    assert cost_for(ASKED, "0.14.0", tmp_path).option == "b"
    assert cost_for(ASKED, "0.23.1", tmp_path).option == "c"
    assert cost_for(ASKED, "0.8.5", tmp_path).option == "more/e"
    assert cost_for(ASKED, None, tmp_path).option == "c"  # a release not recorded: the newest
    assert cost_for({**ASKED, "engine": "sglang"}, "0.5", tmp_path) == Cost(
        "roofline", "roofline", {}
    )


def test_laws_of_lengths_become_servesims():
    prompt, output = LogNormal(500, 0.5), Uniform(3, 9)
    load = ClosedLoop(2, 40, prompt, output)
    settings = workload_overrides(load, HERE)
    made = setup_from(*settings).workload.load(1).requests
    assert len(made) == 40
    assert {r.output_tokens for r in made} <= set(range(3, 10))
    assert 350 < sum(r.prompt_tokens for r in made) / 40 < 650
    assert (shown(prompt), shown(output), shown(Fixed(7))) == ("log-normal 500, CV 0.5", "3…9", "7")


def test_stages_follow_each_other():
    stages = (Stage(2.0, 2.0), Stage(4.0, 1.0))
    load = OpenLoop(8 / 3, "constant", 8, Fixed(100), Fixed(5), prefix=Prefix(32, 1), stages=stages)
    assert mean_rate_rps(load) == pytest.approx(8 / 3)
    made = setup_from(*workload_overrides(load, HERE)).workload.load(1).requests
    seconds = [r.arrival_ps / 1e12 for r in made]
    assert seconds == pytest.approx([0, 0.5, 1, 1.5, 2, 2.25, 2.5, 2.75])
    assert len({r.content for r in made}) == 1  # they share one prefix


def test_a_rank_gets_its_share_of_the_load():
    closed = workload_overrides(ClosedLoop(9, 90, Fixed(1), Fixed(2)), HERE, ranks=4)
    assert {"workload.concurrency=3", "workload.num_requests=23"} <= {*closed}
    opened = workload_overrides(OpenLoop(8.0, "poisson", 80, Fixed(1), Fixed(2)), HERE, ranks=4)
    assert {"workload.rate_rps=2", "workload.num_requests=20"} <= {*opened}
    with pytest.raises(ServesimError, match="dp=2"):
        workload_overrides(Requests("x.csv"), HERE, ranks=2)


def test_all_at_once():
    load = OpenLoop(math.inf, "poisson", 5, Fixed(9), Fixed(2))
    made = setup_from(*workload_overrides(load, HERE)).workload.load(1).requests
    assert {r.arrival_ps for r in made} == {0}
    batch = setup_from(*workload_overrides(StaticBatch(3, Fixed(9), Fixed(2)), HERE))
    assert [r.arrival_ps for r in batch.workload.load(1).requests] == [0, 0, 0]


def test_recorded_requests_are_read_beside_the_case(tmp_path):
    lines = ["arrival_s,prompt_tokens,output_tokens,block_ids", '0.5,40,9,"[1, 2, 3]"']
    (tmp_path / "a's run.csv").write_text("\n".join([*lines, '1.5,20,3,"[1]"', ""]))
    settings = workload_overrides(Requests("a's run.csv", block_size=16), tmp_path)
    made = setup_from(*settings).workload.load(1).requests
    assert [(r.arrival_ps // 10**9, r.prompt_tokens) for r in made] == [(500, 40), (1500, 20)]
    with pytest.raises(MissingDataError, match=r"none\.csv"):
        workload_overrides(Requests("none.csv"), tmp_path)


def test_limits_are_set_under_the_engines_own_names(tmp_path):
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=512, enable_prefix_caching=False)
    vllm = settings_of(case(limits=limits), tmp_path)
    assert {"scheduler.max_num_seqs=8", "kv.enable_prefix_caching=false"} <= {*vllm.overrides}
    sglang = settings_of(case(limits=limits, engine=Engine("sglang", "0.5.23")), tmp_path)
    assert "scheduler.max_running_requests=8" in sglang.overrides
    assert "scheduler.chunked_prefill_size=512" in sglang.overrides
    engine = Engine("trtllm", "1.0.0rc3")
    trtllm = {*settings_of(case(limits=limits, engine=engine), tmp_path).overrides}
    assert {"scheduler.max_batch_size=8", "scheduler.max_num_tokens=512"} <= trtllm
    assert {"engine=trtllm", "scheduler.disable_overlap_scheduler=false"} <= trtllm
    assert vllm.blocks_derived


@pytest.mark.parametrize("limits", [Limits(num_gpu_blocks=500), Limits(kv_cache_tokens=8000)])
def test_recorded_blocks_are_taken(limits, tmp_path):
    settings = settings_of(case(limits=limits), tmp_path)
    assert "kv.num_gpu_blocks=500" in settings.overrides
    assert not settings.blocks_derived


def test_vllm_v0_has_its_own_host_times_over_the_same_kernels(tmp_path):
    old = {"model": "llama3.1_8b", "engine": Engine("vllm", "0.6.6"), "counted_from": "sent"}
    known = settings_of(case(hardware="a100_80gb_sxm", **old), tmp_path)
    host = own_host_of("a100_80gb_sxm", "vllm_v0")
    assert {f"cost.host.{name}={value:g}" for name, value in host.items()} <= {*known.overrides}
    assert "front_end=vllm_v0_a100_80gb_sxm" in known.overrides
    newer = settings_of(case(hardware="a100_80gb_sxm", model="llama3.1_8b"), tmp_path)
    assert newer.cost == known.cost
    assert not any("cost.host" in setting for setting in newer.overrides)
    unknown = settings_of(case(hardware="b200_sxm", dtype="fp8", **old), tmp_path)
    assert not any("cost.host" in setting for setting in unknown.overrides)


def test_lengths_whose_mean_is_recorded_are_drawn_evenly(tmp_path):
    spread = ClosedLoop(2, 4, LogNormal(64, 0.5), Fixed(8))
    assert "workload.even_ranks=true" in settings_of(case(workload=spread), tmp_path).overrides
    assert not any("even_ranks" in s for s in settings_of(case(), tmp_path).overrides)


@pytest.mark.parametrize(("mean", "cv"), [(100.0, 0.3), (327.4, 1.1), (768.0, 1.1)])
def test_a_bounded_law_has_the_mean_that_is_recorded(mean, cv, tmp_path):
    one = case(workload=ClosedLoop(2, 2000, Fixed(8), LogNormal(mean, cv, 1024)))
    setup = setup_from(*settings_of(one, tmp_path).overrides)
    drawn = [request.output_tokens for request in setup.workload.load(setup.seed).requests]
    assert sum(drawn) / 2000 == pytest.approx(mean, rel=3e-3)
    assert max(drawn) <= 1024
    with pytest.raises(SettingError, match=r"mean=1000.*high=1024"):
        LogNormal(1000.0, cv, 1024)


def test_on_several_ranks_v0_has_other_host_times(tmp_path):
    old = {"model": "llama2_7b", "hardware": "h100_sxm", "engine": Engine("vllm", "0.6.3")}
    one, two = (settings_of(case(tp=tp, **old), tmp_path).overrides for tp in (1, 2))
    exposed = [own_host_of("h100_sxm", name)["exposed_us"] for name in ("vllm_v0", "vllm_v0_tp")]
    for overrides, us in zip((one, two), exposed, strict=True):
        assert f"cost.host.exposed_us={us:g}" in overrides


def test_pipeline_stages_are_refused(tmp_path):
    with pytest.raises(ServesimError, match="pp=2"):
        settings_of(case(pp=2), tmp_path)


def test_what_a_reader_should_know_is_noted(tmp_path):
    settings = settings_of(
        case(dp=2, counted_from="sent", limits=Limits(enforce_eager=True)), tmp_path
    )
    notes = "; ".join(settings.notes)
    assert "one of 2 data-parallel ranks" in notes
    assert "no front end vllm_a40" in notes
    assert "enforce_eager makes no difference to the roofline cost" in notes


def requests_of(number, prompt, output, every_s=1.0, lasting_s=2.0):
    return [
        ServedRequest(i * every_s, i * every_s, i * every_s + lasting_s, output, prompt)
        for i in range(number)
    ]


def test_offered_kv_of_a_closed_loop_is_that_of_its_users():
    closed = case(workload=ClosedLoop(4, 40, Fixed(100), Fixed(20)))
    assert offered(closed, requests_of(40, 100, 20)) == (4, 480)
    few = case(workload=closed.workload, limits=Limits(max_num_seqs=3))
    assert offered(few, requests_of(40, 100, 20)) == (3, 360)


def test_offered_kv_of_an_open_loop_is_rate_times_latency():
    load = OpenLoop(3.0, "poisson", 60, Fixed(100), Fixed(21), prefix=Prefix(40, 2))
    measured = {"ttft_ms": {"mean": 500.0}, "tpot_ms": {"mean": 75.0}}  # E2E 500 + 20 × 75 = 2 s
    found = offered(case(workload=load, measured=measured), requests_of(60, 100, 21))
    assert found == (6, 6 * 81 + 2 * 40)
    longer = case(workload=load, measured={"e2e_ms": {"mean": 4000.0}})
    assert offered(longer, requests_of(60, 100, 21)).concurrency == 12


def test_offered_kv_of_recorded_requests_is_by_their_arrivals():
    recorded = case(workload=Requests("x.csv"), measured={"makespan_s": {"value": 1.0}})
    found = offered(recorded, requests_of(11, 10, 10, every_s=0.5, lasting_s=2.0))
    assert found.concurrency == pytest.approx(11 / 5 * 2)


def test_limits_are_per_rank():
    closed = case(workload=ClosedLoop(40, 80, Fixed(10), Fixed(10)), dp=2)
    seats = case(workload=closed.workload, dp=2, limits=Limits(max_num_seqs=15))
    assert offered(closed, requests_of(40, 10, 10), share=2).concurrency == 20
    assert offered(seats, requests_of(40, 10, 10), share=2).concurrency == 15
    assert offered(seats, requests_of(80, 10, 10)).concurrency == 30  # both ranks are simulated


def test_ranks_that_share_experts_are_simulated_together(tmp_path):
    settings = settings_of(case(dp=2, expert_parallel=True), tmp_path)
    assert "dp=2" in settings.overrides
    assert settings.ranks == 1
    assert settings_of(case(dp=2), tmp_path).ranks == 2
