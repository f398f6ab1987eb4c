"""Nobody is let in while the KV cache is nearly full."""

from dataclasses import dataclass

from servesim import checks
from servesim.policies.admission.base import EngineLoad
from servesim.records import Request


@dataclass(frozen=True, slots=True)
class KVHeadroom:
    """HTTP 503 while the share of KV blocks held reaches a watermark.

    Only blocks held count: neither those that waiting requests will need, nor cached ones that
    nobody holds.

    Attributes:
        max_kv_use: share of the blocks, in (0, 1], from which on requests are refused.
    """

    max_kv_use: float = 0.9

    def __post_init__(self) -> None:
        checks.fraction("max_kv_use", self.max_kv_use, open_at_zero=True)

    def refuse(self, request: Request, load: EngineLoad) -> str | None:
        """Blocks held against the watermark; all requests are alike."""
        if load.kv_blocks_used < self.max_kv_use * load.kv_blocks:
            return None
        share = load.kv_blocks_used / load.kv_blocks
        return f"HTTP 503: kv_use = {share:.3f} >= max_kv_use {self.max_kv_use:g}"
