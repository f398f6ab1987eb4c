"""The text of `servesim --help`: commands, groups with their options, settings with defaults.

Hydra's own help prints every value of the configuration, fitted coefficients and quantile tables
included: five hundred lines of which a reader needs eighty.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from omegaconf import OmegaConf

from servesim.app.compose import composed
from servesim.app.paths import conf_dir, groups

_HEAD = """\
servesim: discrete-event simulation of LLM serving

  servesim                                       one run with the defaults
  servesim workload.rate_rps=6 seed=2            change settings
  servesim policies/order=sjf_predicted          choose from a group
  servesim -m policies/order=fcfs,priority workload.rate_rps=2,4,6   sweep
  servesim experiment=policy_comparison          a prepared sweep
  servesim output.format=json                    the summary as JSON, of a sweep a list of rows
  servesim output.timeline=true                  also timeline.json, for https://ui.perfetto.dev
  servesim workload=trace --help                 the settings under other choices
  servesim --cfg job                             the composed configuration, with all tables
  servesim size --help                           how large a KV cache is, and what fits into it

A run writes config.yaml, summary.json, run.json and requests.parquet to outputs/<date>/<time>;
a sweep writes one such directory per run and rows.csv to multirun/<date>/<time>.
"""
_FOOT = "Hydra's own options: servesim --hydra-help"
# a fitted cost is data below its first level: what was measured, and what came of it
_DATA = "cost"
_MOST_VALUES = 8  # a setting of more is a table, too
_SIZE = "… "  # begins what stands for a table
_WIDTH = 100  # columns of a line


def settings_text(overrides: Sequence[str], root: str) -> str:
    """The settings of a root configuration under `overrides`, with their defaults."""
    config = OmegaConf.to_container(composed(overrides, root=root))
    return "\n".join(["\n== Settings: setting=value, with their defaults ==", *_lines(config)])


def help_text(overrides: Sequence[str]) -> str:
    """The help under `overrides`."""
    config = OmegaConf.to_container(composed(overrides))
    lines = [
        *(_HEAD, "== Groups: group=option =="),
        *_options(groups()),
        "\n== Settings: setting=value, with their defaults ==",
        *_lines(config),
        f"\n{_FOOT}",
    ]
    return "\n".join(lines)


def _options(known: Mapping[str, Sequence[str]]) -> list[str]:
    """A line per group; the folders within one are only counted."""
    lines = []
    for group, names in known.items():
        parent, _, folder = group.rpartition("/")
        if parent in known:
            where = conf_dir() / group
            lines.append(f"{parent}={folder}/NAME: {len(names)} more, the files of {where}")
        else:
            lines.append(f"{group}: {', '.join(names)}")
    return lines


def _lines(config: Any) -> list[str]:
    """The settings as YAML, a group on a line if it fits there, else a line for each setting."""
    lines = []
    for name, value in config.items():
        if not isinstance(value, Mapping):
            lines.append(f"{name}: {_written(value)}")
            continue
        # _target_ and the like are no settings
        inner = {str(k): _inner(name, v) for k, v in value.items() if not str(k).startswith("_")}
        one = f"{name}: {{{', '.join(f'{k}: {v}' for k, v in inner.items())}}}"
        lines += [one] if len(one) <= _WIDTH else [f"{name}:", *_indented(inner)]
    return lines


def _indented(settings: Mapping[str, str]) -> list[str]:
    """A line for each setting; tables share lines, and so do options without settings."""
    empty = [name for name, text in settings.items() if text == "{}"]
    tables = {name: text for name, text in settings.items() if text.startswith(_SIZE)}
    lines = [
        f"  {name}: {text}"
        for name, text in settings.items()
        if name not in empty and name not in tables
    ]
    together = ", ".join(f"{name}: {text}" for name, text in tables.items())
    lines += wrap(together, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return lines + ([f"  {', '.join(empty)}: {{}}"] if empty else [])


def _inner(group: str, value: Any) -> str:
    """A setting of a group; of a large one only its size."""
    size = _num_values(value)
    if size > _MOST_VALUES or (group == _DATA and isinstance(value, Mapping)):
        return f"{_SIZE}{size} values"
    return _written(value)


def _written(value: Any) -> str:
    """A value as the command line takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        inner = (f"{k}: {_written(v)}" for k, v in value.items() if not str(k).startswith("_"))
        return f"{{{', '.join(inner)}}}"
    return str(value)


def _num_values(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_num_values(v) for k, v in value.items() if not str(k).startswith("_"))
    return sum(map(_num_values, value)) if isinstance(value, list) else 1
