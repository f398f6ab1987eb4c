"""What the cost of a step depends on, measured in one pass over its work."""

from typing import NamedTuple

from servesim.records import Decodes, Work


class Batch(NamedTuple):
    """The quantities of one step that a fitted cost looks at.

    Attributes:
        tokens: of the whole batch.
        rows: sampled, drafts included.
        seqs: decodes.
        context: tokens of context of all decodes, this step's included.
        longest: context of the longest decode.
        drafts: whether any decode verifies drafts.
        chunk_tiles: query tiles of all prefill chunks.
        most_tiles: of one request.
        requests: decodes and chunks.
        tiled_context: sum over tiles of the mean context that each walks.
        chunk_context: tokens of context of all chunks.
        chunk_longest: context at the end of the longest chunk.
        past: of the chunk with the most KV before it.
    """

    tokens: int
    rows: int
    seqs: int
    context: int
    longest: int
    drafts: bool
    chunk_tiles: int
    most_tiles: int
    requests: int
    tiled_context: float
    chunk_context: int
    chunk_longest: int
    past: int


def only_decodes(decodes: Decodes) -> Batch:
    """The batch of requests that compute and sample one token each."""
    seqs, context, longest = decodes
    return Batch(seqs, seqs, seqs, context, longest, False, 0, 0, seqs, 0.0, 0, 0, 0)


def measured(work: tuple[Work, ...], decodes: Decodes, tile_queries: int) -> Batch:
    """The batch of a plan.

    A request with one token and its drafts is a decode, any other a prefill chunk.

    Args:
        work: see `StepPlan`.
        decodes: see `StepPlan`.
        tile_queries: queries per tile of the attention kernel.
    """
    seqs, context, longest = decodes
    tokens = rows = seqs
    chunk_tiles = most_tiles = chunk_context = chunk_longest = past = 0
    tiled_context = 0.0
    drafts = False
    for _, num_tokens, num_computed, num_drafts, samples in work:
        tokens += num_tokens
        end = num_computed + num_tokens
        if samples:
            rows += 1 + num_drafts
        if num_tokens == 1 + num_drafts:
            seqs += 1
            context += end
            if end > longest:
                longest = end
            drafts = drafts or num_drafts > 0
        else:
            tiles = (num_tokens + tile_queries - 1) // tile_queries
            chunk_tiles += tiles
            if tiles > most_tiles:
                most_tiles = tiles
            tiled_context += tiles * (num_computed + num_tokens / 2)
            chunk_context += end
            if num_computed > past:
                past = num_computed
            if end > chunk_longest:
                chunk_longest = end
    return Batch(
        tokens, rows, seqs, context, longest, drafts, chunk_tiles, most_tiles,
        decodes.seqs + len(work),
        tiled_context, chunk_context, chunk_longest, past,
    )  # fmt: skip
