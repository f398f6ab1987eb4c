"""Least time that a pass can take: the larger of its FLOPs at peak and its bytes at peak bandwidth.

No efficiency, no communication, no host: a real step takes longer.
"""

from typing import NamedTuple

from servesim.deployment import Deployment
from servesim.errors import UnknownChoiceError
from servesim.units import BYTES_PER_GB, FLOP_PER_TFLOP

FLOPS_PER_MAC = 2
MATMULS_OF_ATTENTION = 2  # q·k and scores·v


class PassWork(NamedTuple):
    """What one pass does on one rank.

    Attributes:
        tokens: that go through the layers.
        rows: of them that are sampled from.
        attended: keys that they attend to, summed over tokens and layers.
        kv_bytes: of the cache that is read.
    """

    tokens: int
    rows: int
    attended: int
    kv_bytes: int


class Bounds:
    """Rates and sizes of one rank."""

    def __init__(self, deployment: Deployment) -> None:
        model, gpu, tp = deployment.model, deployment.gpu, deployment.tp
        self._model, self._tp = model, tp
        self.bandwidth = gpu.memory_bandwidth_gb_s * BYTES_PER_GB
        self.flops = peak_tflops(deployment) * FLOP_PER_TFLOP
        parts = [p for p in model.weight_parts(deployment.dtype, tp) if p.loaded]
        apart = {"vision tower", "audio tower"}
        if not model.tied_embeddings:  # a table that is only looked up
            apart.add("embedding")
        read = [part for part in parts if part.name not in apart]
        self._expert_bytes = sum(p.rank_bytes for p in read if p.name == "experts")
        self._other_bytes = sum(p.rank_bytes for p in read) - self._expert_bytes
        experts = [m.num_experts for la in model.all_layers if la.mlp and (m := la.mlp.experts)]
        self._experts = sum(experts) / len(experts) if experts else 0.0
        head = model.embedding_parameters
        self._head = head
        self._layers = model.active_parameters - (1 if model.tied_embeddings else 2) * head

    def weight_bytes(self, tokens: int) -> float:
        """Weights that a pass over so many tokens reads; of the experts those that it reaches."""
        if not self._experts:
            return float(self._other_bytes)
        reached = self._model.expected_active_experts(tokens) / self._experts
        return self._other_bytes + self._expert_bytes * reached

    def seconds(self, work: PassWork) -> float:
        """Least time of one pass."""
        width = FLOPS_PER_MAC * MATMULS_OF_ATTENTION * self._model.num_heads * self._model.head_dim
        flops = FLOPS_PER_MAC * (self._layers * work.tokens + self._head * work.rows)
        flops += width * work.attended
        moved = self.weight_bytes(work.tokens) + work.kv_bytes
        return max(flops / self._tp / self.flops, moved / self.bandwidth)


def peak_tflops(deployment: Deployment) -> float:
    """Peak for the weights' dtype; formats without units of their own are computed in 16 bits.

    Of a quantised checkpoint the fastest that the GPU has.
    """
    if deployment.model.quantisation is not None:
        return max(deployment.gpu.dense_tflops.values())
    try:
        return deployment.gpu.tflops(deployment.dtype)
    except UnknownChoiceError:
        return deployment.gpu.tflops("bf16")


class TokenPasses(NamedTuple):
    """Tokens that go through the model to write a reply.

    Attributes:
        without_cache: every pass computes all tokens so far again.
        with_cache: every token is computed once.
    """

    without_cache: int
    with_cache: int


def token_passes(prompt_tokens: int, output_tokens: int) -> TokenPasses:
    """Tokens passed through the model with and without a KV cache.

    Counted when the reply is complete, its last token included: reply token i leaves a context of
    prompt + i tokens, which is what a pass without a cache computes, and of which a cache leaves
    one. 1,000 and 500 tokens: Σ (1,000 + i) over i = 1 … 500 is 625,250; with a cache 1,500. (An
    engine never computes the last token of a reply, whose KV nobody reads: 624,750 and 1,499.)
    """
    grown = output_tokens * prompt_tokens + output_tokens * (output_tokens + 1) // 2
    return TokenPasses(grown, prompt_tokens + output_tokens)
