"""python -m validation.fit source=llmservingsim gpu=RTXPRO6000 model=Llama-3.1-8B [key=value ...].

Fits a cost to public operator profiles, prints its error on points held out of the fit, and
writes the YAML to `out=` (default outputs/cost/MODEL_GPU.yaml; in conf/cost/ it is a choice of
`cost`). `plot=` draws the errors.
"""

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from servesim import checks
from servesim.errors import OutputError, ServesimError, SettingError, UnknownChoiceError
from validation.data import source_dir
from validation.fit.build import Fit, Request, fit

SOURCES = ("llmservingsim",)
KEYS = ("source", *(field.name for field in fields(Request)), "out", "plot")
REQUIRED = ("source", "gpu", "model")
TEXT = ("source", "gpu", "model", "out", "plot")


def main(arguments: list[str]) -> int:
    """Run the command; 0, or 2 after one line about the user's mistake."""
    try:
        settings = parse(arguments)
        done = fit(source_dir(settings["source"]), request_of(settings))
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
    """Checked key=value arguments.

    Raises:
        SettingError: an argument is no key=value, or a required one is missing.
        UnknownChoiceError: an unknown key or source.
    """
    for argument in arguments:
        if "=" not in argument:
            raise SettingError("argument", argument, f"must be key=value, with {', '.join(KEYS)}")
    try:
        settings = OmegaConf.to_container(OmegaConf.from_dotlist(arguments), resolve=True)
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise SettingError("arguments", " ".join(arguments), reason) from None
    if not isinstance(settings, dict):
        raise SettingError("arguments", arguments, "must be key=value")
    for key in settings:
        if key not in KEYS:
            raise UnknownChoiceError("setting", key, KEYS)
    for key in REQUIRED:
        if key not in settings:
            raise SettingError(key, None, "must be given")
    for key in TEXT:
        if key in settings:
            settings[key] = str(settings[key])
    checks.choice("source", settings["source"], SOURCES)
    return {str(key): value for key, value in settings.items()}


def request_of(settings: dict[str, Any]) -> Request:
    """The part of the settings that says what to fit, checked."""
    given = {k: v for k, v in settings.items() if k in {field.name for field in fields(Request)}}
    for key, value in given.items():
        if key == "tp":
            checks.whole(key, value, at_least=1)
        elif key not in TEXT:
            checks.not_negative(key, value)
    return Request(**given)


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
    host = done.tree["coefficients"]["host"]
    table.caption = f"host {host['us']:g} µs per step, {done.tree['source']['host']}"
    return table


def yaml_text(done: Fit, arguments: list[str]) -> str:
    """The YAML, headed by the command that made it."""
    command = " ".join(a for a in arguments if not a.startswith(("out=", "plot=")))
    body = yaml.safe_dump(done.tree, sort_keys=False, width=100, default_flow_style=None)
    return (
        f"# python -m validation.fit {command}\n"
        "# coefficients are microseconds (servesim/cost/coefficients.py); errors are shares, on\n"
        "# points that were held out of the fit, and do not include the host time\n"
        f"{body}"
    )


def default_out(settings: dict[str, Any]) -> str:
    """A place that is nobody's: shipped costs are not overwritten unasked."""
    tp = f"_tp{settings['tp']}" if settings.get("tp", 1) != 1 else ""
    return f"outputs/cost/{settings['model']}_{settings['gpu']}{tp}.yaml".lower()


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
