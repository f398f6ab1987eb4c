"""The exchange of tokens among ranks, from a source's description of its machine."""

import json
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from servesim.deployment import Deployment
from servesim.errors import TraceError
from servesim.hardware.gpu import GPU
from validation.fit.kernels.exchange import exchange

CONF = Path(__file__).parents[3] / "conf"
CARD = GPU("card", 96.0, 1.0, {"bf16": 1.0}, 1.0)


def described(tmp_path, model="qwen3_30b_a3b", **machine):
    path = tmp_path / "bench" / "examples" / "G" / "M" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(machine))
    spec = instantiate(OmegaConf.load(CONF / "model" / f"{model}.yaml"), _convert_="all")
    return exchange(tmp_path, "G", "M", Deployment(spec, CARD))


def test_every_turn_of_both_rings_waits_once_and_sends_a_rank_s_tokens(tmp_path):
    tables, origin = described(tmp_path, link_bw=16, link_latency=20000)
    # 48 layers, there and back, of 2 ranks one turn; half of 16384 tokens of 4096 bytes: 2097 us
    assert tables[2]["tokens"] == [1, 16384]
    assert tables[2]["us"][0] == pytest.approx(96 * (20 + 0.128), rel=1e-3)
    assert tables[2]["us"][1] == pytest.approx(96 * (20 + 2097.152), rel=1e-3)
    assert tables[4]["us"][1] == pytest.approx(3 * 96 * (20 + 1048.576), rel=1e-3)
    assert "16 GB/s and 20 us" in origin


def test_a_dense_model_exchanges_nothing(tmp_path):
    assert described(tmp_path, "qwen3_32b", link_bw=16, link_latency=20000)[0] == {}


def test_a_source_without_a_machine_says_nothing(tmp_path):
    spec = instantiate(OmegaConf.load(CONF / "model" / "qwen3_30b_a3b.yaml"), _convert_="all")
    assert exchange(tmp_path, "G", "M", Deployment(spec, CARD))[0] == {}


def test_a_machine_without_its_link_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"link_bw.*link_latency"):
        described(tmp_path, link_bw=16)
