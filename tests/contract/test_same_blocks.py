"""A simulation has the blocks that `servesim size` prints, for every engine and kind of model."""

from functools import lru_cache

import pytest
import yamls

from servesim.app import size as command
from servesim.app.api import setup_from

size = lru_cache(maxsize=None)(command.size)

KINDS = {
    "dense": ("model=llama3.1_8b", "hardware=rtx_pro_6000"),
    "dense, a short context": ("model=llama3.1_8b", "hardware=rtx_4090", "max_model_len=8192"),
    "latent": ("model=deepseek_v2_lite", "hardware=h100_sxm", "tp=2", "max_model_len=32768"),
    "windows": ("model=gemma3_27b", "hardware=h200_sxm", "max_model_len=32768"),
    "recurrent": ("model=qwen3.6_27b", "hardware=h100_sxm", "tp=2", "max_model_len=32768"),
    "fp8 cache": ("model=qwen3_32b", "hardware=h100_sxm", "tp=2", "kv_dtype=fp8_e4m3"),
}
# a YAML of each class: the releases of vLLM V1 differ in what they derive, not in what they take
# as given
_TREES = {path.stem: yamls.tree(path) for path in yamls.of("scheduler")}
PROFILES = {tree["_target_"]: stem for stem, tree in _TREES.items() if "_target_" in tree}
HOW = {
    "a share": ("kv.gpu_memory_utilization=0.85",),
    "one term": ("kv.activation_gib=1.5",),
    "one reserve": ("kv.reserve_gib=1",),
    "a cache": ("kv.kv_cache_gib=7.25",),
    "blocks": ("kv.num_gpu_blocks=4097",),
}


def check(scheduler, *chosen):
    """The same blocks, and all tokens in them for requests."""
    chosen = (f"scheduler={scheduler}", *chosen)
    row, setup = size(*chosen), setup_from(*chosen, "cost=roofline")
    budget = setup.budget()
    assert budget.num_gpu_blocks == row["num_gpu_blocks"]
    assert budget.block_size == row["block_size"]
    tokens = budget.kv_cache_tokens
    if len(row["kv_groups"]) == 1:
        null_block = scheduler.startswith("vllm_v1")
        assert tokens == (row["num_gpu_blocks"] - null_block) * row["block_size"]
    else:
        longest = row["max_model_len"]
        logged = int(budget.layout.concurrency(row["num_gpu_blocks"], longest) * longest)
        assert tokens == logged // row["block_size"] * row["block_size"]
    engine = setup.profile.start(setup.engine(budget))
    assert engine.kv_blocks * engine.block_size == tokens // engine.block_size * engine.block_size
    return row


@yamls.each("scheduler")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_blocks(path, kind):
    check(path.stem, *KINDS[kind])


@pytest.mark.parametrize("scheduler", PROFILES.values())
@pytest.mark.parametrize("how", HOW)
def test_the_same_blocks_with_measured_terms(scheduler, how):
    check(scheduler, *KINDS["dense, a short context"], *HOW[how])


@yamls.each("scheduler")
def test_derived_terms_given_back_change_no_block(path):
    chosen = (f"scheduler={path.stem}", *KINDS["dense, a short context"])
    row = size(*chosen)
    names = ("weights_gib", "non_torch_gib", "activation_gib", "cuda_graph_gib")
    terms = [f"kv.{name}={row[name]!r}" for name in names]
    budget = setup_from(*chosen, "cost=roofline", *terms).budget()
    assert budget.num_gpu_blocks == row["num_gpu_blocks"]
