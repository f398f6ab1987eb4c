"""Tables of any model from kernel measurements (aiconfigurator): `Kernels` cost out."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servesim import checks
from servesim.cost.kernels import Kernels
from servesim.errors import SettingError
from validation.fit import result
from validation.fit.kernels import calibration, check, deployments, graphs, tables, twins
from validation.fit.kernels.places import Places
from validation.fit.kernels.shapes import shapes_of
from validation.sources import aiconfigurator as source

FOLDER = "aiconfigurator"
ENGINES = ("vllm", "sglang", "trtllm")
DTYPES = ("bf16", "fp8", "fp8_block", "nvfp4")
KV_DTYPES = ("bf16", "fp8")
HEADER = (
    "tables are microseconds of all layers on one rank (servesim/cost/kernel_tables.py); errors",
    "are shares, of reading the tables without the measurement in question, without host times",
)
# FlashAttention-3 and the kernels of data-centre Blackwell split the KV of a chunk
SPLITS_KV = (90, 100, 103)


@dataclass(frozen=True)
class Request:
    """What is to be fitted.

    Attributes:
        gpu: the source's folder name, or a YAML's of validation/fit/kernels/twins.py.
        model: a published name, or that of a YAML in conf/model.
        engine: whose kernels.
        engine_version: its release, the nearest measured one is taken; None is the newest.
        tp: tensor-parallel ranks.
        dtype: of the weights; the head and routers stay in bf16.
        kv_dtype: of the KV cache.
        library_version: release of the matrix products and all-reduces, where it is another.
        library_engine: engine of the matrix products, where it is another; `library_version` is
            then of that one.
    """

    gpu: str
    model: str
    engine: str = "vllm"
    engine_version: str | None = None
    tp: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    library_version: str | None = None
    library_engine: str | None = None

    def __post_init__(self) -> None:
        checks.choice("engine", self.engine, ENGINES)
        if self.library_engine is not None:
            checks.choice("library_engine", self.library_engine, ENGINES)
        checks.whole("tp", self.tp, at_least=1)
        checks.choice("dtype", self.dtype, DTYPES)
        checks.choice("kv_dtype", self.kv_dtype, KV_DTYPES)
        for setting in ("engine_version", "library_version"):
            value = getattr(self, setting)
            if value is not None and not isinstance(value, str):
                raise SettingError(setting, value, "must be text: 0.10 is not 0.1")


def fit(root: Path, request: Request) -> result.Fit:
    """Tables of `request` from the measurements under `root`, the source's folder.

    Raises:
        UnknownChoiceError: no such GPU or model, here or there.
        MissingDataError: nothing of an operation was measured.
        SettingError: a shape is beyond what was measured.
        TraceError: a file is not what it should be.
    """
    folder, measured = twins.measured_gpu(request.gpu), twins.measured_card(request.gpu)
    splits_kv = source.architecture(root, folder) in SPLITS_KV
    target = deployments.deployment(
        request.gpu, request.model, request.tp, request.dtype, request.kv_dtype, request.engine
    )
    shapes = shapes_of(target)
    sizes = graphs.sizes(target)
    place = source.Place(root, folder, request.engine, request.engine_version)
    places = Places(place, request.library_version, request.library_engine)
    how = tables.Formats(request.dtype, measured, splits_kv, sizes[-1])
    of = tables.kernels(places, target, shapes, how)
    host, origin = calibration.host_of(deployments.hardware_of(request.gpu), request.engine)
    errors = check.parts(of)
    link = of.link.origin if of.link else "one rank"
    tree: dict[str, Any] = {
        "_target_": "servesim.cost.kernels.Kernels",
        "_convert_": "all",
        "allow_mismatch": False,
        "fitted_on": result.fitted_on(target),
        "source": _source(request, places)
        | {"host": origin, "link": link}
        | _notes(how)
        | twins.note(target.gpu, measured)
        | ({"experts": of.scaled_experts} if of.scaled_experts else {}),
        "fit_range": _ranges(of),
        "held_out_error": {part.name: part.summary() for part in errors},
        "tables": result.rounded_tables(tables.tree(of)),
        "graphs": {"sizes": list(sizes)},
        "host": host,
    } | calibration.tuned_of(deployments.hardware_of(request.gpu), request.engine)
    Kernels(**{key: value for key, value in tree.items() if not key.startswith("_")})
    return result.Fit(tree, errors, f"{origin}; {link}", HEADER)


def _source(request: Request, places: Places) -> dict[str, str]:
    asked = request.engine_version or "any"
    versions = sorted({Path(file).parts[-3] + " " + Path(file).parts[-2] for file in places.read})
    return {
        "repository": source.REPOSITORY,
        "commit": source.COMMIT,
        "licence": source.LICENCE,
        "files": ", ".join(places.read),
        "engine_version": asked if asked != "any" else versions[0].split()[-1],
        "measured_version": ", ".join(versions),
        "fitted_at": datetime.date.today().isoformat(),
    }


def _notes(how: tables.Formats) -> dict[str, str]:
    return {
        "products": how.dtype,
        "estimated": "norms, rotary embedding, activation, sampler; chunks with tokens before them",
    }


def _ranges(of: tables.Kernels) -> dict[str, list[int]]:
    """What was measured, by the axes of servesim/cost/fit_range.py."""
    seqs, contexts, rows = tables.decode_attention(of)
    measured = [(n, contexts[len(row) - 1]) for n, row in zip(seqs, rows, strict=True)]
    prompts = next(iter(of.prefills.values())).tokens
    longest = int(max(context for _, context in measured))
    return {
        "tokens": [int(of.rows[0]), int(of.rows[-1])],
        "sampled_rows": [int(tables.HEAD_ROWS[0]), int(tables.HEAD_ROWS[-1])],
        "decode_seqs": [int(seqs[0]), int(seqs[-1])],
        "longest_decode_context": [int(contexts[0]), longest],
        "longest_prefill_context": [int(prompts[0]), int(prompts[-1])],
        "prefill_past": [0, int(prompts[-1])],
        "kv_tokens": [1, int(max(n * context for n, context in measured))],
    }
