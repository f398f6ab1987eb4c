"""No step gets shorter by having more in it."""

from costs import LIKE_MEASURED, chunk, decode, step
from hypothesis import given
from hypothesis import strategies as st

from servesim.records import Work

CONTEXTS = st.lists(st.integers(1, 3000), min_size=1, max_size=9)
CHUNKS = st.lists(st.tuples(st.integers(2, 400), st.integers(0, 2000)), max_size=3)


def batch(contexts: list[int], chunks: list[tuple[int, int]]) -> tuple[Work, ...]:
    decodes = tuple(decode(i, context) for i, context in enumerate(contexts))
    return decodes + tuple(chunk(100 + i, n, p) for i, (n, p) in enumerate(chunks))


def test_a_token_more_never_makes_a_lone_request_faster() -> None:
    def ps(tokens: int, past: int) -> int:
        return step(LIKE_MEASURED, Work(0, tokens, past, 0, True)).duration_ps

    for past in (0, 1, 100, 3000):
        times = [ps(tokens, past) for tokens in range(1, 40)]
        assert times == sorted(times)


@given(CONTEXTS, CHUNKS, st.integers(0, 8), st.integers(1, 2000), st.integers(1, 3000))
def test_no_axis_makes_a_step_shorter(
    contexts: list[int], chunks: list[tuple[int, int]], which: int, more: int, another: int
) -> None:
    def ps(contexts: list[int], chunks: list[tuple[int, int]], *more: Work) -> int:
        return step(LIKE_MEASURED, *batch(contexts, chunks), *more).duration_ps

    before = ps(contexts, chunks)
    longer = list(contexts)
    longer[which % len(longer)] += more
    assert before <= ps(longer, chunks)
    assert before <= ps([*contexts, another], chunks)
    assert before <= ps(contexts, [*chunks, (1 + more, another)])
    if not chunks:  # the first chunk of a batch of decodes makes another kind of call of it
        assert before <= ps(contexts[1:], [], Work(99, 1 + more, contexts[0] - 1, 0, True))
    else:
        tokens, past = chunks[0]
        assert before <= ps(contexts, [(tokens + more, past), *chunks[1:]])
        assert before <= ps(contexts, [(tokens, past + more), *chunks[1:]])
