"""Roofline: step time from data-sheet figures and stated efficiencies, without a measurement.

For any model on any GPU; good for orders of magnitude and for comparing GPUs. Where a measured
step matters, use a fitted cost. What kernels of each kind of layer read and multiply:
`kernel_work`.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from servesim import checks
from servesim.cost import kernel_work, residuals
from servesim.cost.attention_time import AttentionTime, Span
from servesim.cost.bounds import FLOPS_PER_MAC
from servesim.cost.durations import Progression
from servesim.deployment import Deployment
from servesim.errors import UnknownChoiceError
from servesim.model.dtypes import DTYPE_BYTES
from servesim.model.mlp import power
from servesim.records import Decodes, StepPlan, StepTime, new_tuple
from servesim.units import BYTES_PER_GB, FLOP_PER_TFLOP, seconds_to_ps

# formats whose activations are narrow, too, and the units that multiply them; others (awq, gptq,
# mxfp4) are widened to 16 bits first
_UNITS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "nvfp4": "fp4"}


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peak figures of the GPU, each scaled by what kernels reach of it.

    Attributes:
        compute_efficiency: share of the peak FLOP/s that large matrix products reach.
        bandwidth_efficiency: share of the peak memory bandwidth that weight and KV reads reach.
        host_overhead_s: seconds per step during which the GPU waits for the host.
        host_overhead_per_seq_s: further seconds per scheduled sequence.
        link_efficiency: share of the link bandwidth that a ring all-reduce reaches.
        link_latency_s: seconds that an all-reduce takes whatever its size.
        residuals: see servesim/cost/residuals.py, or None.
    """

    compute_efficiency: float
    bandwidth_efficiency: float
    host_overhead_s: float
    host_overhead_per_seq_s: float
    link_efficiency: float
    link_latency_s: float
    residuals: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for field in ("compute_efficiency", "bandwidth_efficiency", "link_efficiency"):
            checks.fraction(field, getattr(self, field), open_at_zero=True)
        for field in ("host_overhead_s", "host_overhead_per_seq_s", "link_latency_s"):
            checks.not_negative(field, getattr(self, field))
        residuals.parse(self.residuals)

    def bind(self, deployment: Deployment) -> "RooflineTimer":
        """The timer for `deployment`; UnknownChoiceError if the GPU has no peak for its dtype."""
        return RooflineTimer(self, deployment)

    def mismatch(self, deployment: Deployment) -> str:
        """Nothing was fitted, so it holds for any deployment as well as it does."""
        return ""

    def describe(self) -> str:
        """One line for the summary."""
        return (
            f"roofline, not fitted: {self.compute_efficiency:g} of peak FLOP/s, "
            f"{self.bandwidth_efficiency:g} of peak bandwidth, "
            f"{self.host_overhead_s * 1e3:g} ms of host time per step"
        )

    def axis_range(self, axis: str) -> tuple[float, float]:
        """Nothing was fitted, so no step is outside and no axis is known."""
        raise UnknownChoiceError("axis of the roofline cost", axis, ())


class RooflineTimer:
    """A roofline for one deployment; sizes and rates are those of one rank."""

    def __init__(self, cost: Roofline, deployment: Deployment) -> None:
        gpu, tp = deployment.gpu, deployment.tp
        rate = FLOP_PER_TFLOP * cost.compute_efficiency
        flops = gpu.tflops(deployment.dtype) * rate
        quantised_flops = _quantised_tflops(deployment) * rate
        bandwidth = gpu.memory_bandwidth_gb_s * BYTES_PER_GB * cost.bandwidth_efficiency
        head = deployment.model.embedding_parameters / tp

        self._host_s = cost.host_overhead_s
        self._per_seq_s = cost.host_overhead_per_seq_s
        self._matrices = tuple(
            (
                m.missed_by_token,
                FLOPS_PER_MAC * m.macs / (quantised_flops if m.quantised else flops),
                m.num_bytes / bandwidth,
            )
            for m in kernel_work.matrices(deployment)
        )
        self._states = tuple(
            (s.flops / flops, s.num_bytes / bandwidth) for s in kernel_work.state_calls(deployment)
        )
        self._head_read_s = head * kernel_work.head_bytes(deployment) / bandwidth
        self._head_row_s = FLOPS_PER_MAC * head / flops
        self._attention = AttentionTime(kernel_work.kv_calls(deployment), flops, bandwidth)
        all_reduces = _all_reduces(deployment)
        link = gpu.link_gb_s * BYTES_PER_GB * cost.link_efficiency
        ring_bytes = 2 * (tp - 1) / tp * deployment.model.hidden_size
        ring_bytes *= DTYPE_BYTES[deployment.dtype]
        self._link_step_s = all_reduces * cost.link_latency_s
        self._link_token_s = all_reduces * ring_bytes / link
        self._exchanges_s = 2 * _moe_layers(deployment) * cost.link_latency_s
        self._exchange_token_s = _exchange_bytes(deployment) / link
        self._others = 0  # tokens that the other data-parallel ranks run
        self._dp = deployment.dp
        self._decode_step_ps: dict[int, int] = {}

    def beside(self, tokens: tuple[int, ...]) -> "RooflineTimer":
        """The timer of this rank's steps while each of the others runs so many tokens."""
        timer = copy(self)
        timer._others, timer._decode_step_ps = sum(tokens), {}
        return timer

    def step_time(self, plan: StepPlan) -> StepTime:
        """Host, matrices, states, head, attention and all-reduces, one after the other.

        Attention is one call for the whole batch and kind of layer: token i of n on p past tokens
        attends to p + i keys, and each sequence's KV is read once, so a decode is bound by its
        read and a long prefill chunk by its FLOPs. A request with one token and its drafts is a
        decode.
        """
        seqs, context, _ = plan.decodes
        tokens = rows = seqs
        keys = context
        chunks = []
        new = past = chunk_keys = 0
        for _, num_tokens, num_computed, num_drafts, samples in plan.work:
            if samples:
                rows += 1 + num_drafts
            attended = num_tokens * num_computed + num_tokens * (num_tokens + 1) // 2
            if num_tokens == 1 + num_drafts:
                seqs += 1
                tokens += num_tokens
                context += num_computed + num_tokens
                keys += attended
            else:
                chunks.append((num_tokens, num_computed))
                new += num_tokens
                past += num_computed
                chunk_keys += attended
        if tokens == rows == seqs and not chunks:
            return StepTime(self._decode_ps(seqs) + self._attention.decode_ps(seqs, context))
        span = new_tuple(Span, (seqs, tokens, keys, context, chunk_keys, past + new, past))
        attention_s = self._attention.seconds(span, chunks)
        other_s = self._other_s(seqs + len(chunks), tokens + new, rows)
        return new_tuple(StepTime, (seconds_to_ps(other_s + attention_s), ()))

    def decode_run(self, decodes: Decodes, steps: int) -> Progression:
        """Each step's context is longer by one token per sequence, until a window is full."""
        seqs, context, _ = decodes
        attention_ps, growth_ps, steps = self._attention.decode_run(seqs, context, steps)
        return Progression(self._decode_ps(seqs) + attention_ps, growth_ps, steps)

    def _decode_ps(self, seqs: int) -> int:
        """A step in which `seqs` sequences sample from one token each, without its attention."""
        known = self._decode_step_ps.get(seqs)
        if known is None:
            known = self._decode_step_ps[seqs] = seconds_to_ps(self._other_s(seqs, seqs, seqs))
        return known

    def _other_s(self, seqs: int, tokens: int, rows: int) -> float:
        """All but the attention over KV caches."""
        seconds = self._host_s + self._per_seq_s * seqs
        if not tokens:
            return seconds
        everywhere = tokens + self._others
        for missed, token_s, read_s in self._matrices:
            reached_s, compute_s = read_s, token_s * tokens
            if missed:  # routed experts: this rank's share, for the tokens of all ranks
                reached_s *= (1 - power(missed, everywhere)) / self._dp
                compute_s = token_s * everywhere / self._dp
            seconds += compute_s if compute_s > reached_s else reached_s
        for token_s, seq_s in self._states:
            seconds += max(token_s * tokens, seq_s * seqs)
        if rows:
            compute_s, read_s = self._head_row_s * rows, self._head_read_s
            seconds += compute_s if compute_s > read_s else read_s
        seconds += self._exchanges_s + self._exchange_token_s * everywhere
        return seconds + self._link_step_s + self._link_token_s * tokens


def _quantised_tflops(deployment: Deployment) -> float:
    """Peak for the matrices of a quantised checkpoint."""
    quantisation, gpu = deployment.model.quantisation, deployment.gpu
    units = "" if quantisation is None else _UNITS.get(quantisation.name, "")
    return gpu.dense_tflops.get(units) or gpu.tflops(deployment.dtype)


def _all_reduces(deployment: Deployment) -> int:
    """One after each mixer and one after each MLP, among several ranks (Megatron-LM)."""
    if deployment.tp == 1:
        return 0
    halves = ((la.mixer, la.mlp) for la in deployment.model.all_layers)
    return sum((mixer is not None) + (mlp is not None) for mixer, mlp in halves)


def _moe_layers(deployment: Deployment) -> int:
    """Layers whose tokens go from rank to rank: none without data-parallel ranks."""
    if deployment.dp == 1:
        return 0
    mlps = (layer.mlp for layer in deployment.model.all_layers)
    return sum(mlp is not None and mlp.experts is not None for mlp in mlps)


def _exchange_bytes(deployment: Deployment) -> float:
    """Of one token of any rank over the link of one rank, there and back in every MoE layer.

    A ring all-gather of all activations before the experts and a reduce-scatter behind them
    (vLLM's default, `allgather_reducescatter`), each (dp - 1) / dp of all of them.
    """
    dp, size = deployment.dp, DTYPE_BYTES[deployment.dtype]
    return 2 * (dp - 1) / dp * _moe_layers(deployment) * deployment.model.hidden_size * size
