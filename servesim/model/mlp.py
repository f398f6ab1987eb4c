"""The feed-forward half of a layer: dense, or a mixture of experts."""

from collections.abc import Iterator
from dataclasses import dataclass

from servesim.model.parts import Weights


@dataclass(frozen=True, slots=True)
class MLP:
    """Two or three matrices.

    Attributes:
        intermediate_size: its width.
        gated: whether a gate projection multiplies the up projection (three matrices).
        bias: whether the projections have biases.
    """

    intermediate_size: int
    gated: bool = True
    bias: bool = False

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """Split by column, then by row."""
        one = hidden_size * self.intermediate_size
        ups = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        for name in (*ups, "down_proj"):
            yield Weights("mlp", f"mlp.{name}", one)
        if self.bias:
            up = len(ups) * self.intermediate_size
            yield Weights("mlp", "mlp.up_proj.bias", up, linear=False)
            yield Weights("mlp", "mlp.down_proj.bias", hidden_size, 1, linear=False)

    @property
    def experts(self) -> "MoE | None":
        """None: every token passes all of it."""
        return None


@dataclass(frozen=True, slots=True)
class MoE:
    """A router and routed experts, perhaps with shared experts or a dense MLP beside them.

    Attributes:
        num_experts: routed experts.
        experts_per_token: of which a token passes so many.
        intermediate_size: width of a routed expert.
        shared_size: summed width of the experts that every token passes.
        gated: whether an expert has three matrices.
        bias: whether the experts' projections have biases.
        router_bias: biases of the router, one per expert and kind.
        shared_gate: whether the shared expert's output is scaled by a learned gate.
        latent_size: width between down and up projection that routed experts work in (latent
            MoE); None is the hidden size.
        latent_norm: whether the latent is normalised.
        dense_size: width of a dense MLP beside the experts (Gemma 4).
        router_extra: further parameters of the router.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    shared_size: int = 0
    gated: bool = True
    bias: bool = False
    router_bias: int = 0
    shared_gate: bool = False
    latent_size: int | None = None
    latent_norm: bool = False
    dense_size: int = 0
    router_extra: int = 0

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """Routed experts are split over ranks by width; the router is on every rank."""
        width = hidden_size if self.latent_size is None else self.latent_size
        matrices = 3 if self.gated else 2
        expert = matrices * width * self.intermediate_size
        # beside a dense MLP the experts are not in its module (checkpoints of Gemma 4)
        name = "experts" if self.dense_size else "mlp.experts"
        yield self._routed(name, expert, linear=True)
        if self.bias:
            biases = (matrices - 1) * self.intermediate_size + width
            yield self._routed(f"{name}.bias", biases, linear=False)
        router = hidden_size * self.num_experts
        yield Weights("router", "mlp.gate", router, 1)
        extra = self.router_bias * self.num_experts + self.router_extra
        yield Weights("router", "mlp.gate.bias", extra, 1, linear=False)
        shared = matrices * hidden_size * self.shared_size
        yield Weights("shared experts", "mlp.shared_experts", shared)
        if self.shared_gate:
            yield Weights("shared experts", "mlp.shared_expert_gate", hidden_size, 1)
        if self.latent_size is not None:
            yield Weights("experts", "mlp.latent_proj", 2 * hidden_size * width, 1)
            if self.latent_norm:
                yield Weights("norms", "mlp.latent_norm", width, 1, linear=False)
        if self.dense_size:
            yield from MLP(self.dense_size, self.gated).weights(hidden_size)

    def _routed(self, name: str, one: int, *, linear: bool) -> Weights:
        active = self.experts_per_token * one
        return Weights("experts", name, self.num_experts * one, linear=linear, active=active)

    @property
    def experts(self) -> "MoE | None":
        """Itself."""
        return self

    @property
    def missed_by_one_token(self) -> float:
        """Chance that a token does not reach a given expert, routed uniformly."""
        return 1 - self.experts_per_token / self.num_experts

    def expected_active(self, tokens: int) -> float:
        """Distinct routed experts that `tokens` tokens reach, routed uniformly."""
        return self.num_experts * (1 - power(self.missed_by_one_token, tokens))


def power(base: float, exponent: int) -> float:
    """By squaring, as `**` calls `pow`, whose last bit differs between machines."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
