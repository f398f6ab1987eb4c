"""`servesim.simulate` and what it returns."""

import dataclasses

import pytest

import servesim
from servesim.app.api import setup_from
from servesim.app.run import execute
from servesim.errors import ServesimError, SettingError, UnknownChoiceError
from servesim.policies.order.shortest_prompt import ShortestPrompt

SMALL = ("workload=fixed", "workload.num_requests=6")


def test_summary_is_a_flat_row_and_requests_a_table():
    result = servesim.simulate(*SMALL)
    assert result.summary["finished"] == 6
    assert all(not isinstance(v, dict | list) for v in result.summary.values())
    requests = result.requests
    assert list(requests["rid"]) == list(range(6))
    assert (requests["ttft_s"] > 0).all()
    assert len(result.steps) == 0
    assert len(servesim.simulate(*SMALL, keep_steps=True).steps) == result.summary["steps"]


def test_mistakes_are_exceptions_with_the_same_line():
    with pytest.raises(UnknownChoiceError, match="did you mean 'fcfs'"):
        servesim.simulate("policies/order=fcsf")
    with pytest.raises(SettingError, match=r"workload\.rate_rps=-1: must be above 0"):
        servesim.simulate("workload.rate_rps=-1")
    with pytest.raises(ServesimError, match="cannot read 'rate'"):
        servesim.simulate("rate")


def test_an_object_may_take_the_place_of_a_setting():
    setup = setup_from(*SMALL)
    changed = dataclasses.replace(setup, order=ShortestPrompt())
    assert execute(changed).summary["finished"] == 6


def test_a_run_does_not_depend_on_another_one_before_it():
    first = servesim.simulate(*SMALL, "seed=5").record
    servesim.simulate(*SMALL, "policies/order=priority", "seed=6")
    assert servesim.simulate(*SMALL, "seed=5").record == first


def test_it_works_inside_another_hydra_application(tmp_path):
    from hydra import compose, initialize_config_dir

    (tmp_path / "mine.yaml").write_text("x: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert servesim.simulate(*SMALL).summary["finished"] == 6
        assert compose("mine").x == 1


def test_the_main_job_loads_neither_torch_nor_transformers_nor_seaborn():
    import subprocess
    import sys

    code = (
        "import sys, servesim; servesim.simulate('workload=fixed', 'workload.num_requests=2');"
        "print([m for m in ('torch', 'transformers', 'seaborn', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
