import pytest

from servesim.deployment import Deployment
from servesim.errors import SettingError, UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.model.spec import ModelSpec

QWEN = ModelSpec("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, False, 131072, True)
ANY_GPU = GPU("g", 80.0, 2000.0, {"bf16": 300.0}, 100.0)


@pytest.mark.parametrize("tp", [1, 2, 4, 28])
def test_ranks_that_share_the_heads_are_taken(tp):
    assert Deployment(QWEN, ANY_GPU, tp=tp).tp == tp


@pytest.mark.parametrize("tp", [3, 7, 8])
def test_ranks_that_split_a_head_are_refused(tp):
    with pytest.raises(SettingError, match=f"tp={tp}: must split 28 heads and 4 KV heads evenly"):
        Deployment(QWEN, ANY_GPU, tp=tp)


def test_bad_values_are_named():
    with pytest.raises(SettingError, match="tp=0"):
        Deployment(QWEN, ANY_GPU, tp=0)
    with pytest.raises(UnknownChoiceError, match="unknown dtype 'bf8'"):
        Deployment(QWEN, ANY_GPU, dtype="bf8")
    with pytest.raises(UnknownChoiceError, match="unknown kv_dtype 'int4'"):
        Deployment(QWEN, ANY_GPU, kv_dtype="int4")
    with pytest.raises(SettingError, match="engine='': must be text"):
        Deployment(QWEN, ANY_GPU, engine="")
