"""How long attention takes in one step: its FLOPs or its reads, whichever take longer, by kind.

Decodes are known as a group, by their number and the sum of their contexts, so that a run of
their steps has a closed form. Where a layer sees a window, they attend to and read the smaller of
that sum and of a whole window for each: exact if all contexts are within the window or all are
beyond it, else too much. Chunks are known one by one, and exact.
"""

from collections.abc import Sequence
from typing import NamedTuple

from servesim.cost.kernel_work import KVCall
from servesim.units import PS_PER_S


class Span(NamedTuple):
    """What the tokens of one step attend to where all of the context is seen.

    Attributes:
        seqs: decodes.
        tokens: of the decodes, one and its drafts each.
        keys: that those attend to, summed over tokens.
        context: tokens of context of all decodes, this step's included.
        chunk_keys: that the tokens of prefill chunks attend to.
        chunk_context: tokens of context of all chunks, this step's included.
        past: those of them that are not this step's.
    """

    seqs: int
    tokens: int
    keys: int
    context: int
    chunk_keys: int
    chunk_context: int
    past: int


class AttentionTime:
    """Of all layers with a cache that grows with the context, on one rank.

    Args:
        calls: one per kind of cache.
        flops: FLOP/s that are reached.
        bandwidth: bytes/s that are reached.
    """

    def __init__(self, calls: Sequence[KVCall], flops: float, bandwidth: float) -> None:
        self._calls = [(c, c.flops / flops, c.num_bytes / bandwidth) for c in calls]
        # a token of a decode's context costs whole picoseconds, so that a run is a progression
        self._token_ps = 0
        windows: dict[int, int] = {}
        for call, key_s, read_s in self._calls:
            token_ps = round(max(key_s, read_s) * PS_PER_S)
            if call.most_keys is None:
                self._token_ps += token_ps
            else:
                windows[call.most_keys] = windows.get(call.most_keys, 0) + token_ps
        self._windows = tuple(windows.items())

    def decode_ps(self, seqs: int, context: int) -> int:
        """A step of `seqs` decodes without drafts."""
        duration_ps = self._token_ps * context
        for window, token_ps in self._windows:
            most = seqs * window
            duration_ps += token_ps * (context if context < most else most)
        return duration_ps

    def decode_run(self, seqs: int, context: int, steps: int) -> tuple[int, int, int]:
        """The first of up to `steps` such steps, what each takes longer, and how many do so.

        Growth is constant until the decodes fill a window.
        """
        growth_ps = self._token_ps
        first_ps = growth_ps * context
        for window, token_ps in self._windows:
            room = seqs * window - context
            if room > 0:
                first_ps += token_ps * context
                growth_ps += token_ps
                steps = min(steps, room // seqs + 1)
            else:
                first_ps += token_ps * seqs * window
        return first_ps, growth_ps * seqs, steps

    def seconds(self, span: Span, chunks: Sequence[tuple[int, int]]) -> float:
        """A step of any kind; `chunks` are (new tokens, tokens before them)."""
        seqs, tokens, all_keys, all_context, all_chunk_keys, all_chunk_context, past = span
        total = 0.0
        for (_, _, window, chunk_share, past_share), key_s, read_s in self._calls:
            if window is None:
                keys, context = all_keys, all_context + all_chunk_context
                chunk_keys = all_chunk_keys
            else:
                keys = min(all_keys, tokens * window)
                context = min(all_context, seqs * (window - 1) + tokens)
                chunk_keys = 0
                for new, before in chunks:
                    chunk_keys += _windowed_keys(new, before, window)
                    context += min(new + before, new + window - 1)
            compute_s = key_s * (keys + chunk_share * chunk_keys + past_share * past)
            load_s = read_s * context
            total += compute_s if compute_s > load_s else load_s
        return total


def _windowed_keys(new: int, before: int, window: int) -> int:
    """Keys that `new` tokens after `before` others attend to, each to itself and to those before.

    Those that would see more than a window see a window.
    """
    keys = new * before + new * (new + 1) // 2
    hidden = before + new - window  # from the last token
    if hidden <= 0:
        return keys
    beyond = min(new, hidden)
    return keys - beyond * hidden + beyond * (beyond - 1) // 2
