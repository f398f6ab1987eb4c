"""What an engine needs of GPU memory besides weights and KV cache, estimated from the layout.

A stand-in for the start-up measurement (vLLM's profile run); the start-up log of the engine itself
is better, and replaces any of it. What the estimates rest on:

* activations: at start-up the engine runs `max_num_batched_tokens` tokens through the model. The
  widest moment holds, per token, the outputs of all linear layers of one attention or MLP block
  beside three copies of the hidden state. vllm#10517 (Llama-3.1-8B): 9,000 more tokens took
  0.92 GiB of the cache, 109,800 ± 1,200 bytes each; the rule gives 110,592. Or, if that is more,
  the sampler's copies of the logits of `max_num_seqs` rows.
* CUDA graphs: an assumption, of the size of what start-up logs of 8B models report (0.5 GiB).
* everything that torch does not allocate (CUDA context, NCCL): 0.54 GiB in the start-up log of a
  vLLM 0.13 A6000 run (github.com/casys-kaist/LLMServingSim: 47.54 GiB × 0.9 − weights 14.99 −
  cache 27.04 − activations 0.21 by the rule above); with several ranks an assumption.
"""

from servesim.model.dtypes import DTYPE_BYTES
from servesim.model.parts import Weights
from servesim.model.spec import ModelSpec
from servesim.units import gib_to_bytes

HIDDEN_COPIES = 3  # residual, normalised input and output of a block
LOGIT_BYTES = 14  # of one logit: 16-bit, its fp32 copy, probabilities and scratch in fp32
GRAPH_BYTES_PER_LAYER = 157_286  # 0.15 MiB per layer and captured graph
NON_TORCH_GIB = 0.5
COLLECTIVES_GIB = 1.0  # buffers of NCCL and of the custom all-reduce, with two ranks or more


def activation_bytes(model: ModelSpec, dtype: str, tp: int, tokens: int, rows: int) -> int:
    """Peak of activations on one rank during a step of so many tokens.

    Args:
        model: what is run.
        dtype: of the weights; activations of narrower ones are in 16 bits.
        tp: tensor-parallel ranks, which share the widths but not the hidden state.
        tokens: of the step.
        rows: of them that are sampled from.
    """
    width = max(_block_width(model, tp), 0) + HIDDEN_COPIES * model.hidden_size
    size = max(int(DTYPE_BYTES[dtype]), 2)
    return max(tokens * width * size, rows * model.vocab_size * LOGIT_BYTES)


def _block_width(model: ModelSpec, tp: int) -> int:
    """Outputs of the linear layers that one token passes in one block, on one rank; the widest."""
    widest = 0
    for layer in set(model.all_layers):
        parts: dict[str, int] = {}
        for weights in layer.weights(model.hidden_size):
            if weights.linear:
                parts[weights.part] = parts.get(weights.part, 0) + _width(weights, model, tp)
        experts = layer.mlp.experts if layer.mlp is not None else None
        if experts is not None:  # each chosen expert's output, before they are summed
            parts["experts"] += experts.experts_per_token * model.hidden_size
        widest = max(widest, *parts.values())
    return widest


def _width(weights: Weights, model: ModelSpec, tp: int) -> int:
    return weights.active_parameters // (model.hidden_size * min(tp, weights.shards))


def graph_bytes(model: ModelSpec, graphs: int) -> int:
    """Memory of captured CUDA graphs.

    Args:
        model: what is captured.
        graphs: number of captured batch sizes, times the kinds of graph.
    """
    return graphs * model.num_layers * GRAPH_BYTES_PER_LAYER


def non_torch_bytes(tp: int) -> int:
    """CUDA context, libraries and communication buffers on one rank."""
    return gib_to_bytes(NON_TORCH_GIB + (COLLECTIVES_GIB if tp > 1 else 0.0))
