"""Fit of saturation runs (gpullm) of vLLM 0.8.5 on an H100 of 64 GB: `Kernels` cost out.

The runs say how long steps of 1 to 1,000 sequences and of full prompts take as a whole; which steps
a run has follows from its scheduler (validation/fit/lockstep_runs.py), and their time is a formula
of few coefficients (validation/fit/saturated.py), fitted to all models of the table together.
Attention at short contexts is that of the kernel tables of the H100 SXM.
"""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from hydra.utils import instantiate

from servesim import checks
from servesim.app.api import setup_from
from servesim.cost.kernel_timer import KernelTimer
from servesim.cost.kernels import Kernels
from servesim.deployment import Deployment
from servesim.errors import UnknownChoiceError
from servesim.records import Decodes, StepPlan
from validation.cases.converters import gpullm as cases
from validation.fit import result, saturated
from validation.fit.check import Part
from validation.fit.kernels import deployments
from validation.fit.lockstep_runs import Run, recorded
from validation.fit.saturated import Size, Target, Values
from validation.fit.targets import CONF
from validation.score.names import option_of
from validation.score.settings import settings_of
from validation.sources import gpullm as source
from validation.sources.tables import Array

FOLDER = "gpullm-adapter"
GPUS = ("h100_64gb_hbm2",)
LIKE = "kernels/vllm_h100_sxm_{model}_tp1_bf16"  # the same multiprocessors, other memory
SHORTEST = 2  # tokens of context of the first column of its decodes
LONGEST = 131072  # where a line of decodes ends; it goes on beyond
US_PER_MS, US_PER_S = 1e3, 1e6
GIGA = 1e9
BYTES = 2  # of a weight in bf16
FEWEST_STEPS = 10  # of a run whose most frequent step is called its typical one
TOKENS = (513, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 4096, 8192)  # beyond the graphs
HEADER = (
    "tables are microseconds of the whole model (servesim/cost/kernel_tables.py), written from the",
    "coefficients under `source`; errors are shares, the runs of one max_num_seqs held out at a",
    "time. Head, sampler and the host's constant are in `dense`: whole steps do not part them",
)


@dataclass(frozen=True)
class Request:
    """What is to be fitted.

    Attributes:
        model: option of conf/model.
        gpu: option of conf/hardware.
    """

    model: str
    gpu: str = GPUS[0]

    def __post_init__(self) -> None:
        checks.choice("gpu", self.gpu, GPUS)


@dataclass(frozen=True)
class _Model:
    """A model of the table: kernel tables of the like GPU, and their timer."""

    like: dict[str, Any]
    timer: KernelTimer
    size: Size


def fit(root: Path, request: Request) -> result.Fit:
    """Fit all models of the table under `root`, and write the cost of the one asked for.

    Raises:
        UnknownChoiceError: the table has no run of this model.
        MissingDataError: there are no kernel tables of a like GPU.
        TraceError: the table is not what it should be.
    """
    pairs = [
        (made.case, row)
        for made, row in zip(cases.convert(root / source.RUNS), source.read_runs(root), strict=True)
        if made.case.not_covered is None
    ]
    options = sorted({option_of("model", case.model) for case, _ in pairs})
    if request.model not in options:
        raise UnknownChoiceError("model", request.model, options)
    models = {option: _model(option) for option in options}
    targets: list[Target] = []
    runs = []
    for case, row in pairs:
        option = option_of("model", case.model)
        run = recorded(setup_from(*settings_of(case, root).overrides))
        targets += _targets(row, run, option, models[option])
        if option == request.model:
            runs.append(run)
    sizes = {option: model.size for option, model in models.items()}
    values = saturated.fit_values(targets, sizes)
    held = saturated.held_out_errors(targets, sizes)
    errors = _parts(targets, held, request.model)
    target = deployments.deployment(request.gpu, request.model, 1, "bf16", "bf16", "vllm")
    tree = _tree(target, models[request.model], values, request.model) | {
        "fit_range": _ranges(runs),
        "held_out_error": {part.name: part.summary() for part in errors},
    }
    Kernels(**{key: value for key, value in tree.items() if not key.startswith("_")})
    sent = f"client and API server: {values['us_per_sent']:.0f} us per request sent at once"
    return result.Fit(tree, errors, sent, HEADER)


def _model(option: str) -> _Model:
    path = CONF / "cost" / f"{LIKE.format(model=option)}.yaml"
    if not path.is_file():
        known = [p.stem for p in path.parent.glob(LIKE.format(model="*").split("/")[1] + ".yaml")]
        raise UnknownChoiceError("kernel tables", path.stem, sorted(known))
    like: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    on = deployments.deployment("h100_sxm", option, 1, "bf16", "bf16", "vllm")
    cost: Kernels = instantiate(like)
    spec = on.model
    multiplied = spec.num_parameters - spec.embedding_parameters
    return _Model(like, cost.bind(on), Size(multiplied * BYTES / GIGA, 2 * multiplied / GIGA))


def _targets(row: source.Run, run: Run, option: str, model: _Model) -> list[Target]:
    """What was measured of a run; TTFT, which is the client's, is not."""
    sizes = np.array(model.like["graphs"]["sizes"])
    tokens = np.array([plan.num_tokens for plan in run.plans])
    eager = tokens > sizes[-1]
    padded = np.where(eager, tokens, sizes[np.searchsorted(sizes, np.minimum(tokens, sizes[-1]))])
    attention = np.array([_short_attention_us(plan, model.timer) for plan in run.plans])
    kv = np.array([float(plan.decodes.context) for plan in run.plans])
    requests = np.array([float(plan.num_seqs) for plan in run.plans])
    distinct, places = np.unique(padded, return_inverse=True)

    def target(what: str, weights: Array, us: float, sent: int = 0) -> Target:
        return Target(
            f"{row.model} {row.phase}{row.run}",
            what,
            option,
            f"{option} {row.phase} {row.max_num_seqs}",
            distinct.astype(np.float64),
            np.asarray(np.bincount(places, weights, len(distinct)), dtype=np.float64),
            float(weights @ attention),
            float(weights @ kv),
            float(weights @ requests),
            float(weights @ eager),
            sent,
            us,
        )

    found = [target("makespan", run.steps, row.duration_s * US_PER_S, row.num_prompts)]
    if row.reply_tokens > 1:
        found.append(target("itl", run.gaps / run.replies, row.mean_tpot_ms * US_PER_MS))
    elif row.step_period_ms is not None and run.steps.sum() >= FEWEST_STEPS:
        typical = (tokens == int(np.median(np.repeat(tokens, run.steps.astype(int))))).astype(float)
        typical *= run.steps / (typical @ run.steps)
        found.append(target("step", typical, row.step_period_ms * US_PER_MS))
    return found


def _short_attention_us(plan: StepPlan, timer: KernelTimer) -> float:
    """Of its decodes, as if their contexts were the shortest ones, and of its chunks."""
    seqs = plan.decodes.seqs
    short = Decodes(seqs, SHORTEST * seqs, SHORTEST if seqs else 0)
    return sum(
        timer.parts_us(part)["attention"]
        for part in (StepPlan((), decodes=short), StepPlan(plan.work))
        if part.num_seqs
    )


def _parts(targets: list[Target], held: Array, option: str) -> list[Part]:
    """Held-out errors: makespan, and mean gaps between tokens with typical steps as `step`."""
    found = []
    for name, kinds in (("makespan", ("makespan",)), ("step", ("itl", "step"))):
        chosen = [i for i, t in enumerate(targets) if t.model == option and t.what in kinds]
        worst = max(chosen, key=lambda i: abs(held[i]))
        found.append(Part(name, held[chosen], targets[worst].name))
    return found


def _tree(on: Deployment, model: _Model, values: Values, option: str) -> dict[str, Any]:
    """The YAML but for its range and errors."""
    own = {name: values[f"{option}.{name}"] for name in saturated.OWN}
    coefficients = {name: values[name] for name in saturated.SHARED} | own
    return {
        "_target_": "servesim.cost.kernels.Kernels",
        "_convert_": "all",
        "allow_mismatch": False,
        "fitted_on": result.fitted_on(on),
        "source": {
            "repository": source.REPOSITORY,
            "commit": source.COMMIT,
            "licence": source.LICENCE,
            "files": source.RUNS,
            "engine_version": cases.VERSION,
            "fitted_at": datetime.date.today().isoformat(),
            "attention": f"of short contexts: {LIKE.format(model=option)}",
            "coefficients": result.rounded(coefficients),
            "host": "in the measured steps",
            "link": "one rank",
        },
        "tables": result.rounded_tables(_tables(model, values, own["us_per_kv_token"])),
        "graphs": {"sizes": model.like["graphs"]["sizes"]},
        "host": result.rounded(
            {"us": 0.0, "us_per_seq": own["us_per_seq"], "us_per_token": 0.0}
            | {"exposed_us": 0.0, "eager_us": own["eager_us"]}
        ),
    }


def _tables(model: _Model, values: Values, us_per_kv_token: float) -> dict[str, Any]:
    tables: dict[str, Any] = model.like["tables"]
    tokens = np.array([*model.like["graphs"]["sizes"], *TOKENS], dtype=float)
    decodes = tables["decode_attention"]
    seqs, contexts = np.array(decodes["seqs"], dtype=float), np.array([SHORTEST, LONGEST])
    short = np.array([row[0] for row in decodes["us"]])
    us = short[:, None] + us_per_kv_token * seqs[:, None] * contexts
    return tables | {
        "dense": {"tokens": tokens, "us": saturated.products_us(tokens, model.size, values)},
        "head": {"rows": [1, tokens[-1]], "us": [0.0, 0.0]},
        "decode_attention": {"seqs": seqs, "context": contexts, "us": us},
    }


def _ranges(runs: list[Run]) -> dict[str, list[int]]:
    """What was measured, by the axes of servesim/cost/fit_range.py."""
    plans = [plan for run in runs for plan in run.plans]
    work = [w for plan in plans for w in plan.work]
    most_seqs = max(plan.num_seqs for plan in plans)
    return {
        "tokens": [1, max(plan.num_tokens for plan in plans)],
        "sampled_rows": [0, most_seqs],
        "decode_seqs": [1, most_seqs],
        "longest_decode_context": [1, max(plan.decodes.longest for plan in plans)],
        "longest_prefill_context": [1, max(w.num_tokens + w.num_computed for w in work)],
        "prefill_past": [0, max(w.num_computed for w in work)],
        "kv_tokens": [1, max(plan.decodes.context for plan in plans)],
    }
