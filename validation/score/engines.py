"""Which scheduler of `conf/scheduler` stands for which engine and release, in one place.

| engine   | release       | scheduler  | steps planned ahead by default | source |
|----------|---------------|------------|------|------|
| vllm     | below 0.8     | vllm_v0    | no   | V1 became the default engine with 0.8.0 |
| vllm     | 0.8 … 0.13    | vllm_v1    | no   | vLLM `engine/arg_utils.py` |
| vllm     | 0.14 or later | vllm_v1    | yes  | `async_scheduling` on unless turned off |
| vllm     | not recorded  | vllm_v1    | yes  | taken for the newest release |
| sglang   | below 0.4     | sglang     | no   | overlap scheduling came on by default with 0.4.0 |
| sglang   | 0.4 or later, or not recorded | sglang | yes | `disable_overlap_schedule` False |
| trtllm   | any, or not recorded | trtllm | yes | overlap scheduler of 1.x, PyTorch backend |
| hf, transformers | any   | hf         | no   | transformers continuous batching is synchronous |

Within vLLM V1 the release picks the rules as `scheduler.release` does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from servesim.errors import SettingError, UnknownChoiceError
from servesim.scheduler.vllm.releases import NEWEST, profile_of

Release = tuple[int, int]

VLLM_V0 = "vllm_v0"  # its scheduler; its host times, over the kernels that V1 runs too
VLLM_V1_FROM: Release = (0, 8)
VLLM_ASYNC_FROM: Release = (0, 14)
SGLANG_OVERLAP_FROM: Release = (0, 4)

_COMMON = {
    "max_model_len": "max_model_len",
    "num_gpu_blocks": "kv.num_gpu_blocks",
    "gpu_memory_utilization": "kv.gpu_memory_utilization",
    "enable_prefix_caching": "kv.enable_prefix_caching",
    "block_size": "kv.block_size",
}
_VLLM = _COMMON | {
    "max_num_seqs": "scheduler.max_num_seqs",
    "max_num_batched_tokens": "scheduler.max_num_batched_tokens",
}
_SGLANG = _COMMON | {
    "max_num_seqs": "scheduler.max_running_requests",
    "max_num_batched_tokens": "scheduler.chunked_prefill_size",
    "enable_mixed_chunk": "scheduler.enable_mixed_chunk",
}
_TRTLLM = _COMMON | {
    "max_num_seqs": "scheduler.max_batch_size",
    "max_num_batched_tokens": "scheduler.max_num_tokens",
    "block_size": "scheduler.tokens_per_block",
}
_HF = _COMMON | {
    "max_num_seqs": "scheduler.max_requests_per_batch",
    "max_num_batched_tokens": "scheduler.max_batch_tokens",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """How servesim plays an engine.

    Attributes:
        family: whose kernels run, as `fitted_on.engine` of a cost names it.
        host: whose front end is its, and whose host times on one rank, as
            validation/calibration.yaml names them.
        option: of conf/scheduler.
        overrides: settings of that scheduler that the release implies.
        limits: a case's limit → the setting that it sets.
        ahead: setting and value with which steps are planned ahead of the GPU, or "".
        not_ahead: the same for planning each step after the one before it.
        ahead_by_default: what the release does.
        notes: where the profile is not that of the very engine and release.
    """

    family: str
    host: str
    option: str
    overrides: tuple[str, ...]
    limits: Mapping[str, str]
    ahead: str = ""
    not_ahead: str = ""
    ahead_by_default: bool = False
    notes: tuple[str, ...] = ()

    def host_times(self, tp: int) -> str:
        """Whose host times are its on `tp` ranks, as validation/calibration.yaml names them.

        V0's driver pickles every batch and broadcasts it to the other ranks before they begin
        (vLLM 0.6.6 `worker/worker_base.py`, `LocalOrDistributedWorkerBase.execute_model`).
        """
        return f"{self.host}_tp" if self.host == VLLM_V0 and tp > 1 else self.host

    def scheduling(self, asked: bool | None) -> tuple[str, ...]:
        """Settings for planning ahead as the case says, else as the release does.

        Raises:
            SettingError: the case says that it does, and the engine cannot.
        """
        if asked and not self.ahead:
            reason = f"{self.family} plans each step after the one before it; nearest: false"
            raise SettingError("limits.async_scheduling", asked, reason)
        ahead = self.ahead_by_default if asked is None else asked
        chosen = self.ahead if ahead else self.not_ahead
        return (chosen,) if chosen else ()


def profile_for(engine: str, version: str | None) -> Profile:
    """The profile that plays `engine` at `version`; None is a release that was not recorded.

    Raises:
        UnknownChoiceError: an engine that nothing plays.
        SettingError: a version that is no release number.
    """
    if engine == "vllm":
        return _vllm(version)
    if engine == "sglang":
        return _sglang(version)
    if engine == "trtllm":
        return _trtllm(version)
    if engine not in _ANY_RELEASE:
        known = ("vllm", "sglang", "trtllm", *_ANY_RELEASE)
        raise UnknownChoiceError("engine.name", engine, known)
    return _ANY_RELEASE[engine]


def release_of(version: str) -> Release:
    """(major, minor) of `0.10.1.1`, `v0.11.0rc2` or `0.5.6.post2`.

    Raises:
        SettingError: no such number.
    """
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        reason = "must begin with a release number such as 0.11, or be null"
        raise SettingError("engine.version", version, reason)
    return int(found[1]), int(found[2])


def _vllm(version: str | None) -> Profile:
    if version is None:
        return _v1("vllm", NEWEST, True, f"release not recorded: taken for {NEWEST}")
    release = release_of(version)
    if release < VLLM_V1_FROM:
        note = f"vLLM {version} is played by the V0 rules of 0.6.6"
        exact = release == (0, 6)
        notes = () if exact else (note,)
        return Profile("vllm", VLLM_V0, VLLM_V0, (), _VLLM, notes=notes)
    number = f"{release[0]}.{release[1]}"
    asked = profile_of(number)
    note = "" if asked.exact else f"vLLM {version} is played by the rules of {asked.profile}"
    return _v1("vllm", number, release >= VLLM_ASYNC_FROM, note)


def _v1(family: str, release: str, ahead_by_default: bool, note: str) -> Profile:
    return Profile(
        family,
        family,
        "vllm_v1",
        (f'scheduler.release="{release}"',),
        _VLLM,
        "scheduler.async_scheduling=true",
        "scheduler.async_scheduling=false",
        ahead_by_default,
        (note,) if note else (),
    )


def _sglang(version: str | None) -> Profile:
    overlap = version is None or release_of(version) >= SGLANG_OVERLAP_FROM
    shown = "a release not recorded" if version is None else version
    note = f"SGLang {shown} is played by the rules of 0.5.23"
    return Profile(
        "sglang",
        "sglang",
        "sglang",
        (),
        _SGLANG,
        "scheduler.disable_overlap_schedule=false",
        "scheduler.disable_overlap_schedule=true",
        overlap,
        () if version == "0.5.23" else (note,),
    )


def _trtllm(version: str | None) -> Profile:
    shown = "a release not recorded" if version is None else version
    note = f"TensorRT-LLM {shown} is played by the documented rules of 1.x, which were not replayed"
    return Profile(
        "trtllm",
        "trtllm",
        "trtllm",
        (),
        _TRTLLM,
        "scheduler.disable_overlap_scheduler=false",
        "scheduler.disable_overlap_scheduler=true",
        True,
        (note,),
    )


_HF_PROFILE = Profile("hf", "hf", "hf", (), _HF)
_ANY_RELEASE = {"hf": _HF_PROFILE, "transformers": _HF_PROFILE}
