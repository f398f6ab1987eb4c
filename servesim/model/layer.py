"""One decoder layer: a mixer, an MLP, either or both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from servesim.model.mlp import MLP, MoE
from servesim.model.parts import KVLayers, Weights


class Mixer(Protocol):
    """What mixes tokens."""

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """Its parameters, in a model of this width."""

    def caches(self, kv_dtype: str, tp: int) -> Iterator[KVLayers]:
        """What it keeps of a request on one of `tp` ranks, one entry per cache."""

    def splits_over(self, tp: int) -> bool:
        """Whether `tp` ranks share it evenly."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer.

    Attributes:
        mixer: attention or recurrence; None for a layer of an MLP only.
        mlp: None for a layer of a mixer only.
        norm_parameters: weights of the norms around the two.
        extra: what else the layer holds.
    """

    mixer: Mixer | None
    mlp: MLP | MoE | None
    norm_parameters: int
    extra: tuple[Weights, ...] = ()

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """All its parameters, in a model of this width."""
        if self.mixer is not None:
            yield from self.mixer.weights(hidden_size)
        if self.mlp is not None:
            yield from self.mlp.weights(hidden_size)
        yield Weights("norms", "norms", self.norm_parameters, 1, linear=False)
        yield from self.extra
