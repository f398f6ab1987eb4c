"""Loads on which speed is measured: settings of servesim, laid over the defaults."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

from servesim.errors import MissingDataError
from servesim.records import Request
from servesim.workload.readers.azure import AzureTrace
from validation.data import source_dir

# about an 8B model on an A100-80GB, one replica, prefix caching on
_ANY_ENGINE = (
    "cost=roofline",
    "hardware=a100_80gb_sxm",
    "max_model_len=32768",
    "workload=azure_conv_like",
    "workload.max_tokens=null",
    "workload.rate_rps=4",
)
_REPLICA = (
    *_ANY_ENGINE,
    "scheduler.max_num_seqs=256",
    "scheduler.max_num_batched_tokens=2048",
)
RECORDED = "recorded"
CASES = {
    # the lengths of Azure's recorded conversations from the first row on, Poisson arrivals
    RECORDED: (*_REPLICA, "kv.num_gpu_blocks=20000"),
    # conversations at a load the replica sustains with ease
    "conversations": (*_REPLICA, "kv.num_gpu_blocks=20000"),
    # half of the requests begin with one of 200 prefixes of 512 tokens; the cache holds few
    "shared_prefixes": (
        *_REPLICA,
        "kv.num_gpu_blocks=6000",
        "workload.prefix={_target_: servesim.workload.prefixes.PrefixGroups, num_groups: 200, "
        "prefix_tokens: 512, share: 0.5}",
    ),
    # memory for about half of what would run, and no look at whether a whole prompt fits
    # (releases before 0.20): queueing all the time, and a preemption for every third request
    "memory_pressure": (
        *_REPLICA,
        "kv.num_gpu_blocks=1020",
        "max_model_len=16384",
        "scheduler.scheduler_reserve_full_isl=false",
    ),
    # the load of "conversations" under the other profiles, each with its own defaults
    "vllm_v1_async": (
        *_REPLICA,
        "kv.num_gpu_blocks=20000",
        "scheduler.async_scheduling=true",
    ),
    **{
        engine: (*_ANY_ENGINE, "kv.num_gpu_blocks=20000", f"scheduler={engine}")
        for engine in ("vllm_v0", "sglang", "hf", "sarathi", "orca", "static")
    },
}


def with_recorded_lengths(requests: Sequence[Request]) -> Sequence[Request]:
    """The same arrivals with the lengths of Azure's trace, over again where it ends.

    Without the trace, the drawn lengths, which follow laws fitted to it, and a note on standard
    error.
    """
    try:
        path = source_dir("azure-llm-2023") / "AzureLLMInferenceTrace_conv.csv"
    except MissingDataError as error:
        print(f"note: {RECORDED} has drawn lengths: {error}", file=sys.stderr)
        return requests
    recorded = AzureTrace(path=str(path)).load(seed=0).requests
    return [
        replace(
            request,
            prompt_tokens=length.prompt_tokens,
            output_tokens=length.output_tokens,
            max_tokens=length.output_tokens,
        )
        for request, length in zip(requests, cycle(recorded), strict=False)
    ]
