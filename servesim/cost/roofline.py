"""Roofline: step time from data-sheet figures and stated efficiencies, without a measurement.

For any dense model on any GPU; good for orders of magnitude and for comparing GPUs. Where a
measured step matters, use a fitted cost.
"""

from dataclasses import dataclass

from servesim import checks
from servesim.cost.durations import Progression
from servesim.deployment import Deployment
from servesim.errors import UnknownChoiceError
from servesim.model.spec import DTYPE_BYTES
from servesim.records import Decodes, StepPlan, StepTime, new_tuple
from servesim.units import BYTES_PER_GB, FLOP_PER_TFLOP, PS_PER_S, seconds_to_ps

FLOPS_PER_MAC = 2
MATMULS_OF_ATTENTION = 2  # q·k and scores·v
ALL_REDUCES_PER_LAYER = 2  # after the attention output and after the MLP (Megatron-LM)


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
    """

    compute_efficiency: float
    bandwidth_efficiency: float
    host_overhead_s: float
    host_overhead_per_seq_s: float
    link_efficiency: float
    link_latency_s: float

    def __post_init__(self) -> None:
        for field in ("compute_efficiency", "bandwidth_efficiency", "link_efficiency"):
            checks.fraction(field, getattr(self, field), open_at_zero=True)
        for field in ("host_overhead_s", "host_overhead_per_seq_s", "link_latency_s"):
            checks.not_negative(field, getattr(self, field))

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
        model, gpu, tp = deployment.model, deployment.gpu, deployment.tp
        weight_bytes = DTYPE_BYTES[deployment.dtype]
        flops = gpu.tflops(deployment.dtype) * FLOP_PER_TFLOP * cost.compute_efficiency
        bandwidth = gpu.memory_bandwidth_gb_s * BYTES_PER_GB * cost.bandwidth_efficiency
        layers = model.num_layers * model.linear_parameters_per_layer / tp
        head = model.embedding_parameters / tp
        attention_flops = model.num_layers * FLOPS_PER_MAC * MATMULS_OF_ATTENTION
        attention_flops *= model.num_heads // tp * model.head_dim

        self._host_s = cost.host_overhead_s
        self._per_seq_s = cost.host_overhead_per_seq_s
        self._layers_read_s = layers * weight_bytes / bandwidth
        self._layers_token_s = FLOPS_PER_MAC * layers / flops
        self._head_read_s = head * weight_bytes / bandwidth
        self._head_row_s = FLOPS_PER_MAC * head / flops
        self._attended_s = attention_flops / flops
        self._kv_token_s = model.kv_bytes_per_token(deployment.kv_dtype, tp) / bandwidth
        all_reduces = ALL_REDUCES_PER_LAYER * model.num_layers if tp > 1 else 0
        link = gpu.link_gb_s * BYTES_PER_GB * cost.link_efficiency
        ring_bytes = 2 * (tp - 1) / tp * model.hidden_size * weight_bytes
        self._link_step_s = all_reduces * cost.link_latency_s
        self._link_token_s = all_reduces * ring_bytes / link
        # a token of a decode's context costs whole picoseconds, so that a run is a progression
        self._decode_token_ps = round(max(self._attended_s, self._kv_token_s) * PS_PER_S)
        self._decode_step_ps: dict[int, int] = {}

    def step_time(self, plan: StepPlan) -> StepTime:
        """Host, linear layers, head, attention and all-reduces, one after the other.

        Attention is one call for the whole batch: token i of n on p past tokens attends to p + i
        keys, and each sequence's KV is read once, so a decode is bound by its read and a long
        prefill chunk by its FLOPs.
        """
        work = plan.work
        decoding, attended, _ = plan.decodes
        tokens = rows = decoding
        context = attended
        for _, num_tokens, num_computed, num_drafts, samples in work:
            tokens += num_tokens
            context += num_computed + num_tokens
            attended += num_tokens * num_computed + num_tokens * (num_tokens + 1) // 2
            if samples:
                rows += 1 + num_drafts
        seqs = decoding + len(work)
        if tokens == rows == seqs:
            return StepTime(self._decode_ps(seqs) + self._decode_token_ps * context)
        attention_s, read_s = self._attended_s * attended, self._kv_token_s * context
        if attention_s < read_s:
            attention_s = read_s
        duration_ps = seconds_to_ps(self._linear_s(seqs, tokens, rows) + attention_s)
        return new_tuple(StepTime, (duration_ps, ()))

    def decode_run(self, decodes: Decodes, steps: int) -> Progression:
        """Each step's context is longer by one token per sequence."""
        seqs, context, _ = decodes
        first = self._decode_ps(seqs) + self._decode_token_ps * context
        return Progression(first, self._decode_token_ps * seqs, steps)

    def _decode_ps(self, seqs: int) -> int:
        """A step in which `seqs` sequences sample from one token each, without its attention."""
        known = self._decode_step_ps.get(seqs)
        if known is None:
            known = self._decode_step_ps[seqs] = seconds_to_ps(self._linear_s(seqs, seqs, seqs))
        return known

    def _linear_s(self, seqs: int, tokens: int, rows: int) -> float:
        """All but the attention."""
        seconds = self._host_s + self._per_seq_s * seqs
        if not tokens:
            return seconds
        compute_s, read_s = self._layers_token_s * tokens, self._layers_read_s
        seconds += compute_s if compute_s > read_s else read_s
        if rows:
            compute_s, read_s = self._head_row_s * rows, self._head_read_s
            seconds += compute_s if compute_s > read_s else read_s
        return seconds + self._link_step_s + self._link_token_s * tokens
