"""Every experiment composes, for each value that it sweeps; every YAML says what it is."""

import pytest
import yamls
from hydra.core.override_parser.overrides_parser import OverridesParser

from servesim.app.api import setup_from
from servesim.app.compose import composed

GROUPS = ("cost", "kv", "metrics", "scheduler", "workload", "experiment", "output")


@pytest.mark.parametrize("group", GROUPS)
def test_every_yaml_begins_with_what_it_is(group):
    for path in yamls.of(group):
        lines = path.read_text().splitlines()
        if lines[0].startswith("# @package"):  # Hydra wants this one first
            lines = lines[1:]
        assert lines[0].startswith("# "), path
        assert len(lines[0].split()) >= 4, f"{path}: its first line says next to nothing"


@yamls.each("experiment")
def test_an_experiment_begins_with_its_command_and_its_question(path):
    package, command = path.read_text().splitlines()[:2]
    assert package == "# @package _global_"
    assert command.startswith(f"# servesim experiment={path.stem} ")
    assert len(command.split()) > 6, "the question that it answers, in words"


@yamls.each("experiment")
def test_an_experiment_sweeps_settings_that_exist(path):
    """Overrides only: all objects can be made, for every value of every parameter."""
    cfg = composed([f"experiment={path.stem}"], with_hydra=True)
    assert cfg.hydra.mode.name == "MULTIRUN"
    sweep = cfg.hydra.sweeper.params
    assert sweep
    parser = OverridesParser.create()
    overrides = [parser.parse_override(f"{name}={values}") for name, values in sweep.items()]
    assert all(override.is_sweep_override() for override in overrides)
    swept = [
        [f"{o.key_or_group}={value}" for value in o.sweep_string_iterator()] for o in overrides
    ]
    # the n-th values of all parameters together; a shorter list begins anew
    for n in range(max(map(len, swept))):
        setup_from(f"experiment={path.stem}", *(values[n % len(values)] for values in swept))
