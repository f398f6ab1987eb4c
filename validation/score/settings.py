"""From a case to the settings of servesim that predict it."""

from dataclasses import asdict, dataclass
from pathlib import Path

from servesim.app.paths import groups
from servesim.errors import ServesimError
from validation.cases.case import Case
from validation.fit.kernels.calibration import own_host_of
from validation.score.costs import Cost, cost_for
from validation.score.engines import Profile, profile_for
from validation.score.names import option_of, published_name
from validation.score.workloads import workload_overrides

KV_LIMITS = ("num_gpu_blocks", "kv_cache_tokens")
_DEFAULT_BLOCK_SIZE = 16  # of every paged engine here that does not say otherwise


@dataclass(frozen=True, slots=True)
class Settings:
    """How a case is simulated.

    Attributes:
        overrides: settings as on the command line of servesim.
        cost: what the steps cost.
        model: option of conf/model.
        hardware: option of conf/hardware.
        blocks_derived: the KV blocks are not recorded, but follow from the engine's sizing rule.
        ranks: data-parallel ranks that do not meet in experts; one of them is simulated, with its
            share of the load. Those that do are simulated together.
        notes: what a reader of the score should know.
    """

    overrides: tuple[str, ...]
    cost: Cost
    model: str
    hardware: str
    blocks_derived: bool
    ranks: int
    notes: tuple[str, ...]


def settings_of(case: Case, folder: Path) -> Settings:
    """Engine, limits, cost, front end and load of a case.

    Args:
        case: what was measured.
        folder: of the case's file.

    Raises:
        ServesimError: something of it has no counterpart.
    """
    if case.pp > 1:
        raise ServesimError(f"pp={case.pp}: pipeline stages are not simulated")
    profile = profile_for(case.engine.name, case.engine.version)
    model, hardware = option_of("model", case.model), option_of("hardware", case.hardware)
    cost = cost_for(_asked(case, profile, model, hardware), case.engine.version)
    eager, unheard = _graphs(case, cost)
    host, of_another = _host(profile.host_times(case.tp), profile.family, hardware, cost)
    front_end, without = _front_end(case, profile, hardware)
    in_step = case.dp > 1 and case.expert_parallel
    ranks = 1 if in_step else case.dp
    overrides = (
        f"model={model}",
        f"hardware={hardware}",
        f"tp={case.tp}",
        f"engine={profile.family}",
        *([f"dp={case.dp}"] if in_step else []),
        f"dtype={case.dtype}",
        f"kv_dtype={case.kv_dtype}",
        f"cost={cost.option}",
        f"scheduler={profile.option}",
        *profile.overrides,
        *profile.scheduling(case.limits.async_scheduling),
        *_limits(case, profile),
        *eager,
        *host,
        *front_end,
        *workload_overrides(case.workload, folder, ranks),
    )
    notes = [*case.notes, *profile.notes, *unheard, *of_another, *without]
    if ranks > 1:
        notes.append(f"one of {ranks} data-parallel ranks, with its share of the load")
    return Settings(
        overrides,
        cost,
        model,
        hardware,
        all(getattr(case.limits, name) is None for name in KV_LIMITS),
        ranks,
        tuple(notes),
    )


def _asked(case: Case, profile: Profile, model: str, hardware: str) -> dict[str, object]:
    return {
        "model": published_name("model", model),
        "gpu": published_name("hardware", hardware),
        "tp": case.tp,
        "dtype": case.dtype,
        "kv_dtype": case.kv_dtype,
        "engine": profile.family,
    }


def _limits(case: Case, profile: Profile) -> tuple[str, ...]:
    """The limits that the case records; the others are the engine's defaults."""
    given = {name: value for name, value in asdict(case.limits).items() if value is not None}
    tokens = given.pop("kv_cache_tokens", None)
    if tokens is not None and "num_gpu_blocks" not in given:
        block_size = given.get("block_size", _DEFAULT_BLOCK_SIZE)
        given["num_gpu_blocks"] = tokens // block_size
    return tuple(
        f"{profile.limits[name]}={_written(value)}"
        for name, value in given.items()
        if name in profile.limits
    )


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _graphs(case: Case, cost: Cost) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Settings, and a note where the cost cannot tell eager mode from CUDA graphs."""
    if not case.limits.enforce_eager:
        return (), ()
    if cost.kind == "kernels":
        return ("cost.graphs.sizes=[]",), ()
    return (), (f"enforce_eager makes no difference to the {cost.kind} cost",)


def _host(
    engine: str, family: str, hardware: str, cost: Cost
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Host times of an engine whose kernels are tabled with those of another, or a note."""
    if cost.kind != "kernels" or engine == family:
        return (), ()
    host = own_host_of(hardware, engine)
    if host is None:
        return (), (f"host times of {engine} on {hardware} are not known: those of {family}",)
    return tuple(f"cost.host.{name}={value:g}" for name, value in host.items()), ()


def _front_end(
    case: Case, profile: Profile, hardware: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The delays before and after the engine, where the latencies hold them and they are known."""
    if case.counted_from != "sent":
        return (), ()
    option = f"{profile.host}_{hardware}"
    if option in groups().get("front_end", []):
        return (f"front_end={option}",), ()
    return (), (f"no front end {option} is known: none is simulated",)
