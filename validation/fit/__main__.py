"""python -m validation.fit source=llmservingsim gpu=RTXPRO6000 model=Llama-3.1-8B [key=value ...].

Fits a cost to public operator profiles, prints its error on points held out of the fit, and
writes the YAML to `out=` (default outputs/cost/MODEL_GPU.yaml; in conf/cost/ it is a choice of
`cost`). `plot=` draws the errors.
"""

import importlib
import shlex
import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from servesim import checks
from servesim.errors import OutputError, ServesimError, SettingError, UnknownChoiceError
from validation.data import source_dir
from validation.fit.result import Fit

SOURCES = tuple(sorted(path.stem for path in (Path(__file__).parent / "sources").glob("[!_]*.py")))
OWN_KEYS = ("source", "out", "plot")


def main(arguments: list[str]) -> int:
    """Run the command; 0, or 2 after one line about the user's mistake."""
    try:
        settings = parse(arguments)
        source = source_of(settings)
        done: Fit = source.fit(source_dir(source.FOLDER), request_of(settings))
        Console(width=120).print(error_table(done))
        write(Path(settings.get("out", default_out(settings))), yaml_text(done, arguments))
        if "plot" in settings:
            from validation.fit.plot import draw  # matplotlib takes a second to import

            draw(done, Path(settings["plot"]))
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse(arguments: list[str]) -> dict[str, Any]:
    """Checked key=value arguments; text as it stands, so that a version 0.10 stays that.

    Raises:
        SettingError: an argument is no key=value, or a required one is missing.
        UnknownChoiceError: an unknown key or source.
    """
    given: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise SettingError("argument", argument, "must be key=value")
        given[key] = value
    if "source" not in given:
        raise SettingError("source", None, f"must be given; one of {', '.join(SOURCES)}")
    wanted = {field.name: field for field in fields(source_of(given).Request)}
    keys = ("source", *wanted, *OWN_KEYS[1:])
    for key in given:
        if key not in keys:
            raise UnknownChoiceError("setting", key, keys)
    for key, field in wanted.items():
        if key not in given and field.default is MISSING:
            raise SettingError(key, None, "must be given")
    return {
        key: _value(key, value) if key in wanted and not _text(wanted[key]) else value
        for key, value in given.items()
    }


def source_of(settings: dict[str, Any]) -> ModuleType:
    """The module that fits `settings["source"]`, or UnknownChoiceError."""
    checks.choice("source", settings["source"], SOURCES)
    return importlib.import_module(f"validation.fit.sources.{settings['source']}")


def request_of(settings: dict[str, Any]) -> Any:
    """The part of the settings that says what to fit, as the source's checked Request."""
    asked = {key: value for key, value in settings.items() if key not in OWN_KEYS}
    return source_of(settings).Request(**asked)


def _text(field: "Field[Any]") -> bool:
    return field.type is str or field.type == str | None


def _value(key: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingError(key, text, str(error).splitlines()[0]) from None


def error_table(done: Fit) -> Table:
    """Held-out error by part; whole steps last."""
    on = done.tree["fitted_on"]
    table = Table(title=f"{on['model']} on {on['gpu']}: error on held-out points, shares")
    for column in ("part", "points", "median", "p90", "worst", "mean signed", "worst at"):
        table.add_column(column, justify="left" if column in ("part", "worst at") else "right")
    for part in done.errors:
        row = part.summary()
        shares = (f"{row[k]:.1%}" for k in ("median", "p90", "worst", "mean_signed"))
        table.add_row(part.name, str(row["points"]), *shares, str(row["worst_at"]))
    table.caption = done.caption
    return table


def yaml_text(done: Fit, arguments: list[str]) -> str:
    """The YAML, headed by the command that made it."""
    command = shlex.join(a for a in arguments if not a.startswith(("out=", "plot=")))
    body = yaml.safe_dump(done.tree, sort_keys=False, width=100, default_flow_style=None)
    head = "".join(f"# {line}\n" for line in (f"python -m validation.fit {command}", *done.header))
    return head + body


def default_out(settings: dict[str, Any]) -> str:
    """A place that is nobody's: shipped costs are not overwritten unasked."""
    tp = f"_tp{settings['tp']}" if settings.get("tp", 1) != 1 else ""
    model = settings["model"].split("/")[-1]
    gpu = settings.get("gpu") or request_of(settings).gpu
    return f"outputs/cost/{model}_{gpu}{tp}.yaml".lower()


def write(path: Path, text: str) -> None:
    """Write `text`, or OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise OutputError(f"out={path}: {error.strerror}") from None
    print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
