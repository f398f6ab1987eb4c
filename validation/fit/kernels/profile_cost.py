"""A `Kernels` cost from a vLLM operator profile (LLMServingSim)."""

import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from servesim.cost.kernels import Kernels
from servesim.deployment import Deployment
from servesim.errors import MissingDataError, SettingError, UnknownChoiceError
from validation.cases.published import model_stem
from validation.data import source_dir
from validation.fit import result, rows
from validation.fit.kernels import calibration, deployments, graphs, grids, profiles
from validation.fit.kernels.exchange import exchange
from validation.fit.kernels.link import AllReduce
from validation.fit.kernels.places import Places
from validation.fit.targets import TARGETS
from validation.sources import aiconfigurator
from validation.sources import llmservingsim as source
from validation.sources.tables import Array

HEADER = (
    "tables are microseconds of all layers on one rank (servesim/cost/kernel_tables.py); errors",
    "are shares, at measured calls that are not in the tables, without host times",
)
LINK_GPU = {"RTXPRO6000": "rtx_pro_6000_server"}  # aiconfigurator's name


class Asked(Protocol):
    """The settings of a request that are read here."""

    @property
    def gpu(self) -> str:
        """The source's folder name."""

    @property
    def model(self) -> str:
        """Last part of its published name."""

    @property
    def tp(self) -> int:
        """Tensor-parallel ranks."""

    @property
    def host_step_us(self) -> float | None:
        """Host time per step; None is that of the calibration."""

    @property
    def all_reduce_us(self) -> float | None:
        """Of one all-reduce; None is that of another source."""

    @property
    def all_reduce_us_per_token(self) -> float | None:
        """Further, per token of the batch."""


def fit(root: Path, asked: Asked) -> result.Fit:
    """Tables of the profile that is asked for.

    Raises:
        UnknownChoiceError: no such profile, or no YAML of its GPU or model here.
        SettingError: all-reduces are neither given nor measured on such a GPU.
        TraceError: a file of the profile is not what it should be.
    """
    profile = source.read_profile(root, asked.gpu, asked.model, asked.tp, experts=True)
    card = TARGETS.get(asked.gpu)
    if card is None:
        raise UnknownChoiceError("gpu", asked.gpu, TARGETS)
    name = model_stem(profile.model) or profile.model
    target = deployments.deployment(card.hardware, name, asked.tp, "bf16", "bf16", "vllm")
    sizes = graphs.sizes(target)
    link, link_origin = all_reduces(asked, target, profile.tokens, sizes[-1])
    tables = profiles.tree(profile, target, card.multiprocessors, link)
    ranks, ranks_origin = exchange(root, asked.gpu, asked.model, target)
    host, host_origin = _host(asked, card.hardware)
    kv_tokens = rows.kv_capacity(target, profile.gpu_memory_utilization)
    tree: dict[str, Any] = {
        "_target_": "servesim.cost.kernels.Kernels",
        "_convert_": "all",
        "allow_mismatch": False,
        "fitted_on": result.fitted_on(target),
        "source": _source(profile)
        | {"host": host_origin, "link": link_origin}
        | ({"exchange": ranks_origin} if ranks else {}),
        "fit_range": ranges(profile),
        "held_out_error": {"step": {"median": 0.0, "p90": 0.0, "worst": 0.0}},
        "tables": result.rounded_tables(tables) | ({"exchange": ranks} if ranks else {}),
        "graphs": {"sizes": list(sizes)},
        "host": host,
    } | calibration.tuned_of(card.hardware, "vllm")
    cost = Kernels(**{key: value for key, value in tree.items() if not key.startswith("_")})
    timer = cost.bind(target)
    errors = profiles.step_parts(profile, timer, target.model.num_layers, kv_tokens)
    tree["held_out_error"] = {part.name: part.summary() for part in errors}
    return result.Fit(tree, errors, f"{host_origin}; {link_origin}", HEADER)


def _host(asked: Asked, hardware: str) -> tuple[dict[str, float], str]:
    host, origin = calibration.host_of(hardware, "vllm")
    if asked.host_step_us is None:
        return host, origin
    return host | {"us": asked.host_step_us}, "stated to the fit (host_step_us)"


def all_reduces(
    asked: Asked, target: Deployment, tokens: Array, largest_graph: int
) -> tuple[dict[str, Any] | None, str]:
    """The table of all-reduces and where it is from: two of each layer, and the embedding's."""
    if target.tp == 1:
        return None, "one rank"
    sums = 2 * target.model.num_layers + 1
    if asked.all_reduce_us is not None:
        us = asked.all_reduce_us + (asked.all_reduce_us_per_token or 0.0) * tokens
        return {"tokens": tokens, "us": sums * us}, "stated to the fit (all_reduce_us)"
    if asked.gpu not in LINK_GPU:
        reason = "must be given for tp > 1: neither the profile nor another source holds it"
        raise SettingError("all_reduce_us", None, reason)
    try:
        root = source_dir("aiconfigurator")
    except MissingDataError as error:
        raise MissingDataError(f"{error.message}; or give all_reduce_us") from None
    places = Places(aiconfigurator.Place(root, LINK_GPU[asked.gpu], "vllm", "0.19.0"))
    link = AllReduce(places, target, largest_graph)
    origin = (
        f"{link.origin} ({aiconfigurator.REPOSITORY} {aiconfigurator.COMMIT[:7]}; another machine)"
    )
    return {"tokens": tokens, "us": sums * grids.never_falling(link.us(tokens))}, origin


def _source(profile: source.Profile) -> dict[str, str]:
    return {
        "repository": source.REPOSITORY,
        "commit": source.COMMIT,
        "licence": source.LICENCE,
        "files": profile.files,
        "engine_version": profile.engine_version,
        "fitted_at": datetime.date.today().isoformat(),
    }


def ranges(profile: source.Profile) -> dict[str, list[int]]:
    """What was measured, by the axes of servesim/cost/fit_range.py."""
    calls = profiles.calls_of(profile)
    return rows.measured_ranges(profile, np.stack([calls.chunk, calls.past, calls.seqs, calls.kv]))
