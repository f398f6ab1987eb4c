"""One measured run or point: what was served, on what, how, and what was measured."""

from dataclasses import dataclass, field

from servesim import checks
from servesim.errors import SettingError
from validation.cases.workloads import Workload

METRICS = (
    "ttft_ms",
    "tpot_ms",  # of one request: (E2E − TTFT) / (reply − 1)
    "itl_ms",  # of one gap between two tokens
    "e2e_ms",
    "makespan_s",  # first arrival to last token
    "output_tokens_per_s",
    "total_tokens_per_s",  # prompts and replies
    "requests_per_s",
    "prefix_hit_tokens",
    "prefix_query_tokens",
)
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "value", "unspecified")
COUNTED_FROM = ("sent", "queued")

Measured = dict[str, dict[str, float]]  # metric → statistic → value


@dataclass(frozen=True, slots=True)
class Source:
    """Where a measurement was published.

    Attributes:
        name: of the converter that reads it.
        repository: where it is published.
        commit: of that repository.
        licence: None where the repository has none.
        file: within the repository.
        row: of the file, by its own id or by line; None where the file is one run.
    """

    name: str
    repository: str
    commit: str
    licence: str | None
    file: str
    row: str | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """Name and release; the release is None where the source does not say it."""

    name: str
    version: str | None = None

    def __post_init__(self) -> None:
        checks.text("name", self.name)
        if self.version is not None:
            checks.text("version", self.version)


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of the engine; None: the default of its release on that GPU.

    `num_gpu_blocks` are of `block_size` tokens. `kv_cache_tokens` is the same pool in tokens, as
    vLLM's log line "GPU KV cache size" gives it; both count the engine's null block.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_gpu_blocks: int | None = None
    kv_cache_tokens: int | None = None
    block_size: int | None = None
    gpu_memory_utilization: float | None = None
    enable_prefix_caching: bool | None = None
    enforce_eager: bool | None = None
    async_scheduling: bool | None = None
    enable_mixed_chunk: bool | None = None

    def __post_init__(self) -> None:
        flags = ("enable_prefix_caching", "enforce_eager", "async_scheduling", "enable_mixed_chunk")
        for name in flags:
            if getattr(self, name) is not None:
                checks.flag(name, getattr(self, name))
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks"):
            _whole_or_none(name, getattr(self, name))
        for name in ("kv_cache_tokens", "block_size"):
            _whole_or_none(name, getattr(self, name))
        if self.gpu_memory_utilization is not None:
            checks.fraction("gpu_memory_utilization", self.gpu_memory_utilization)


@dataclass(frozen=True, slots=True)
class Case:
    """One measured run.

    Attributes:
        name: the file's stem.
        source: where it was published.
        engine: what served.
        model: stem of conf/model, or the published name where there is none.
        hardware: stem of conf/hardware, or the published name where there is none.
        workload: what was asked of it.
        measured: metric → statistic → value, of the whole run. A statistic is `unspecified`
            where the source does not say which it is, `value` where there is only one.
        counted_from: where TTFT and E2E begin: `sent` by the client, or `queued` in the engine.
        tp: tensor-parallel ranks, of each data-parallel rank.
        pp: pipeline stages.
        dp: data-parallel ranks.
        expert_parallel: experts are split over all ranks.
        dtype: of the weights.
        kv_dtype: of the KV cache.
        limits: settings of the engine.
        measured_by_stage: the same as `measured` for each stage of the workload, or None.
        peers: another simulator → its own prediction of the same run.
        noise: spread between repeats, as a share; None where it was run once.
        not_covered: why servesim does not simulate it; None where it does.
        notes: what a reader of the score should know.
    """

    name: str
    source: Source
    engine: Engine
    model: str
    hardware: str
    workload: Workload
    measured: Measured
    counted_from: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    expert_parallel: bool = False
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    limits: Limits = field(default_factory=Limits)
    measured_by_stage: tuple[Measured, ...] | None = None
    peers: dict[str, Measured] = field(default_factory=dict)
    noise: float | None = None
    not_covered: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("name", "model", "hardware", "dtype", "kv_dtype"):
            checks.text(name, getattr(self, name))
        for name in ("tp", "pp", "dp"):
            checks.whole(name, getattr(self, name), at_least=1)
        checks.flag("expert_parallel", self.expert_parallel)
        checks.choice("counted_from", self.counted_from, COUNTED_FROM)
        _check_measured("measured", self.measured)
        for peer, predicted in self.peers.items():
            _check_measured(f"peers.{peer}", predicted)
        self._check_stages()
        if self.noise is not None:
            checks.not_negative("noise", self.noise)

    def _check_stages(self) -> None:
        if self.measured_by_stage is None:
            return
        stages = getattr(self.workload, "stages", None) or ()
        if len(self.measured_by_stage) != len(stages):
            reason = f"must be one for each of the {len(stages)} stages of the workload"
            raise SettingError("measured_by_stage", len(self.measured_by_stage), reason)
        for number, measured in enumerate(self.measured_by_stage):
            _check_measured(f"measured_by_stage.{number}", measured)


def _whole_or_none(name: str, value: object) -> None:
    if value is not None:
        checks.whole(name, value, at_least=1)


def _check_measured(where: str, measured: Measured) -> None:
    for metric, statistics in measured.items():
        checks.choice(f"{where}: metric", metric, METRICS)
        for statistic, value in statistics.items():
            checks.choice(f"{where}.{metric}: statistic", statistic, STATISTICS)
            checks.not_negative(f"{where}.{metric}.{statistic}", value)
