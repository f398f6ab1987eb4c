"""Loads on which speed is measured: settings of servesim, laid over the defaults."""

# about an 8B model on an A100-80GB, one replica, prefix caching on
_REPLICA = (
    "cost=roofline",
    "hardware=a100_80gb_sxm",
    "scheduler.max_num_seqs=256",
    "scheduler.max_num_batched_tokens=2048",
    "max_model_len=32768",
    "workload=azure_conv_like",
    "workload.max_tokens=null",
    "workload.rate_rps=4",
)
CASES = {
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
}
