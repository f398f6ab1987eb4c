"""Vision and audio towers of multimodal models: weights on the GPU, nothing in the KV cache.

Engines keep them in 16 bits and, by default, whole on each rank's share as any other weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from servesim.model.config import MOST_LAYERS, Config
from servesim.model.decoder import hidden_size
from servesim.model.parts import Weights

_RGB = 3


@dataclass(frozen=True, slots=True)
class Encoder:
    """A vision transformer.

    Attributes:
        depth: its layers.
        width: of its residual stream.
        intermediate_size: of its MLPs.
        qkv_width: summed width of all heads.
        gated: whether an MLP has three matrices.
        bias: whether projections and norms have biases.
        norm_parameters: norms of one layer.
        outside: embeddings of patches and positions, projector.
    """

    depth: int
    width: int
    intermediate_size: int
    qkv_width: int
    gated: bool
    bias: bool
    norm_parameters: int
    outside: int

    @property
    def parameters(self) -> int:
        """All of it."""
        matrices = 3 if self.gated else 2
        layer = 4 * self.width * self.qkv_width + matrices * self.width * self.intermediate_size
        if self.bias:
            layer += 3 * self.qkv_width + self.width
            layer += (matrices - 1) * self.intermediate_size + self.width
        return self.depth * (layer + self.norm_parameters) + self.outside


def read(config: Config, text: Config) -> Iterator[Weights]:
    """The towers' parameters; a layout that is not known is counted as a plain ViT."""
    vision = config.inner("vision_config")
    if vision is not None and _depth(vision):
        size = _encoder(config, vision, hidden_size(text)).parameters
        yield Weights("vision tower", "vision", size, linear=False)
    audio = config.inner("audio_config")
    if audio is not None and _depth(audio):
        size = _plain(audio, hidden_size(text)).parameters
        yield Weights("audio tower", "audio", size, linear=False)


def _depth(tower: Config) -> int | None:
    names = ("depth", "num_hidden_layers", "vt_num_hidden_layers", "num_layers")
    return tower.maybe(*names, at_most=MOST_LAYERS)


def _encoder(config: Config, vision: Config, out: int) -> Encoder:
    kind = vision.text("model_type") or config.text("model_type")
    if vision.has("deepstack_visual_indexes"):
        return _qwen3_vl(vision, out)
    if vision.has("vt_hidden_size"):
        return _moonvit(vision, out)
    if kind == "gemma4_vision":
        return _gemma4(vision, out)
    if kind == "siglip_vision_model":
        return _siglip(vision, out)
    if kind == "pixtral":
        return _pixtral(vision, out)
    return _plain(vision, out)


def _patch(vision: Config, channels: int = _RGB) -> int:
    """Values of one patch."""
    return vision.whole("in_channels", "num_channels", default=channels) * _square(
        vision, "patch_size", 14
    )


def _square(vision: Config, key: str, default: int) -> int:
    return vision.whole(key, default=default, at_most=100_000) ** 2


def _qwen3_vl(vision: Config, out: int) -> Encoder:
    """Qwen3-VL and 3.5: patches of two frames, a merger of 2 × 2 patches, one more per level."""
    width = vision.whole("hidden_size")
    patch = _patch(vision) * vision.whole("temporal_patch_size", default=2)
    merged = width * _square(vision, "spatial_merge_size", 2)
    out = vision.whole("out_hidden_size", default=out)
    levels = len(vision.list_of("deepstack_visual_indexes", int))
    merger = merged * merged + merged + merged * out + out
    outside = patch * width + width + vision.whole("num_position_embeddings") * width
    outside += (1 + levels) * merger + 2 * width + levels * 2 * merged
    inner = vision.whole("intermediate_size")
    return Encoder(_depth(vision) or 0, width, inner, width, False, True, 4 * width, outside)


def _moonvit(vision: Config, out: int) -> Encoder:
    """Kimi: LayerNorms and biases (K2.5), or neither (K3)."""
    width, inner = vision.whole("vt_hidden_size"), vision.whole("vt_intermediate_size")
    bias = vision.flag("linear_bias", default=True)
    norm = 2 * width if bias else width
    merged = 4 * width
    rows = vision.whole("init_pos_emb_height") * vision.whole("init_pos_emb_width")
    outside = (_patch(vision) + rows) * width + 2 * norm + merged * (merged + out)
    outside += width + merged + out if bias else 0
    heads = vision.whole("qkv_hidden_size", default=width)
    return Encoder(_depth(vision) or 0, width, inner, heads, False, bias, 2 * norm, outside)


def _gemma4(vision: Config, out: int) -> Encoder:
    """Gemma 4: gated MLPs, four norms, norms of q and k, a table of positions per axis."""
    width, inner = vision.whole("hidden_size"), vision.whole("intermediate_size")
    heads = vision.whole("num_attention_heads") * vision.whole("head_dim")
    norms = 4 * width + 2 * vision.whole("head_dim")
    outside = _patch(vision) * width + 2 * vision.whole("position_embedding_size") * width
    outside += width * out + 2 * width
    return Encoder(_depth(vision) or 0, width, inner, heads, True, False, norms, outside)


def _siglip(vision: Config, out: int) -> Encoder:
    """Gemma 3: SigLIP and one projection."""
    width, inner = vision.whole("hidden_size"), vision.whole("intermediate_size")
    side = vision.whole("image_size") // vision.whole("patch_size")
    outside = _patch(vision) * width + width + side * side * width + 2 * width
    outside += width * out + width
    return Encoder(_depth(vision) or 0, width, inner, width, False, True, 4 * width, outside)


def _pixtral(vision: Config, out: int) -> Encoder:
    """Mistral Small 3.1: Pixtral, 2 × 2 patches merged, two projections."""
    width, inner = vision.whole("hidden_size"), vision.whole("intermediate_size")
    outside = _patch(vision) * width + 2 * width + 4 * width * width + width * out + out * out
    return Encoder(_depth(vision) or 0, width, inner, width, True, False, 2 * width, outside)


def _plain(vision: Config, out: int) -> Encoder:
    """A ViT with biases and a projection of its output."""
    width = vision.whole("hidden_size", "embed_dim", "width", "d_model")
    inner = vision.whole("intermediate_size", "encoder_ffn_dim", "mlp_dim", default=4 * width)
    outside = _patch(vision) * width + width * out
    return Encoder(_depth(vision) or 0, width, inner, width, False, True, 4 * width, outside)
