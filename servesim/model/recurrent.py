"""Mixers whose state does not grow with the context: delta nets, Mamba-2, lightning attention.

A request keeps, in each such layer, a matrix per head and the last inputs of a short convolution
(kernel - 1 columns, 16 bits each).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from servesim.model.parts import KVLayers, Weights

CONV_BYTES = 2  # the convolution's inputs are activations (vLLM mamba_utils.py)
PART = "recurrent"


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A recurrent mixer.

    Attributes:
        heads: heads of its state; ranks share them evenly.
        state_elements: of all heads.
        state_bytes_per_element: 4 where the state is kept in fp32.
        conv_heads_elements: inputs kept for the convolution, split by head.
        conv_group_elements: further inputs kept per group (Mamba-2's B and C).
        groups: of those; a rank holds at least one.
        modules: its weights.
    """

    heads: int
    state_elements: int
    state_bytes_per_element: int
    conv_heads_elements: int
    modules: tuple[Weights, ...]
    conv_group_elements: int = 0
    groups: int = 1

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """Projections, convolution and what each head learns."""
        yield from self.modules

    def caches(self, kv_dtype: str, tp: int) -> Iterator[KVLayers]:
        """The state of one request; `kv_dtype` does not change it."""
        groups = max(1, self.groups // tp)
        conv = -(-self.conv_heads_elements // tp) + groups * self.conv_group_elements
        state = -(-self.state_elements // tp) * self.state_bytes_per_element
        yield KVLayers("recurrent", 1, 0, None, state + conv * CONV_BYTES)

    def splits_over(self, tp: int) -> bool:
        """Whether `tp` ranks share the heads evenly."""
        return self.heads % tp == 0


def _linear(module: str, parameters: int, shards: int) -> Weights:
    return Weights(PART, module, parameters, shards)


def _other(module: str, parameters: int, shards: int) -> Weights:
    return Weights(PART, module, parameters, shards, linear=False)


def gated_delta_net(
    hidden_size: int, key_heads: tuple[int, int], value_heads: tuple[int, int], kernel: int, fp: int
) -> Recurrent:
    """Gated DeltaNet as in Qwen3-Next; heads are (number, width), `fp` bytes per state element."""
    (num_k, k_dim), (num_v, v_dim) = key_heads, value_heads
    keys, values = num_k * k_dim, num_v * v_dim
    conv, name = 2 * keys + values, "linear_attn"
    modules = (
        _linear(f"{name}.in_proj_qkvz", hidden_size * (2 * keys + 2 * values), num_k),
        _linear(f"{name}.in_proj_ba", hidden_size * 2 * num_v, num_k),
        _linear(f"{name}.out_proj", values * hidden_size, num_v),
        _other(f"{name}.conv1d", conv * kernel, num_k),
        _other(f"{name}.heads", 2 * num_v, num_v),
        _other(f"{name}.norm", v_dim, 1),
    )
    return Recurrent(num_k, num_v * k_dim * v_dim, fp, conv * (kernel - 1), modules)


def kimi_delta(
    hidden_size: int, heads: int, head_dim: int, kernel: int, full_gate: bool
) -> Recurrent:
    """Kimi Delta Attention (Kimi Linear); its state is in fp32 (vLLM mamba_utils.py)."""
    width, name = heads * head_dim, "self_attn"
    gate = hidden_size * width if full_gate else head_dim * (hidden_size + width)
    modules = (
        _linear(f"{name}.qkv_proj", 3 * hidden_size * width, heads),
        _linear(f"{name}.f_proj", head_dim * (hidden_size + width), heads),
        _linear(f"{name}.b_proj", hidden_size * heads, heads),
        _linear(f"{name}.g_proj", gate, heads),
        _linear(f"{name}.o_proj", width * hidden_size, heads),
        _other(f"{name}.conv1d", 3 * width * kernel, heads),
        _other(f"{name}.heads", heads + width, heads),
        _other(f"{name}.o_norm", head_dim, 1),
    )
    return Recurrent(heads, width * head_dim, 4, 3 * width * (kernel - 1), modules)


@dataclass(frozen=True, slots=True)
class Mamba2Widths:
    """Of a Mamba-2 mixer, under the names of the paper."""

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    conv_bias: bool
    bias: bool = False


def mamba2(hidden_size: int, widths: Mamba2Widths, fp: int) -> Recurrent:
    """Mamba-2 (SSD) with `fp` bytes per state element."""
    heads, inner = widths.heads, widths.heads * widths.head_dim
    conv = inner + 2 * widths.groups * widths.state
    projected, name = inner + conv + heads, "mixer"
    modules = (
        _linear(f"{name}.in_proj", hidden_size * projected, heads),
        _linear(f"{name}.out_proj", inner * hidden_size, heads),
        _other(f"{name}.conv1d", conv * (widths.kernel + widths.conv_bias), heads),
        _other(f"{name}.heads", 3 * heads, heads),
        _other(f"{name}.norm", inner, heads),
        _other(f"{name}.bias", (projected + hidden_size) * widths.bias, heads),
    )
    columns = widths.kernel - 1
    return Recurrent(
        heads,
        inner * widths.state,
        fp,
        inner * columns,
        modules,
        2 * widths.state * columns,
        widths.groups,
    )


def lightning(hidden_size: int, heads: int, head_dim: int, fp: int) -> Recurrent:
    """Lightning attention (MiniMax-Text-01): no convolution."""
    width, name = heads * head_dim, "self_attn"
    modules = (
        _linear(f"{name}.qkv_proj", 3 * hidden_size * width, heads),
        _linear(f"{name}.output_gate", hidden_size * width, heads),
        _linear(f"{name}.out_proj", width * hidden_size, heads),
        _other(f"{name}.norm", width, heads),
    )
    return Recurrent(heads, width * head_dim, fp, 0, modules)
