"""Sequences of virtual tokens as runs: cut them, compare them."""

from servesim.content import TokenRun

Runs = tuple[TokenRun, ...]


def cut(runs: Runs, at: int) -> tuple[Runs, Runs]:
    """The first `at` tokens, and the rest. `at` is at most their number."""
    for position, run in enumerate(runs):
        if at < run.num_tokens:
            if not at:
                return runs[:position], runs[position:]
            stream, first, num_tokens = run
            head, tail = TokenRun(stream, first, at), TokenRun(stream, first + at, num_tokens - at)
            return (*runs[:position], head), (tail, *runs[position + 1 :])
        at -= run.num_tokens
    return runs, ()


def head(runs: Runs, count: int) -> Runs:
    """The first `count` tokens, or all if there are fewer."""
    if runs and count <= runs[0].num_tokens:  # nearly always, and a page is asked for at every node
        stream, first, _ = runs[0]
        return (TokenRun(stream, first, count),)
    return cut(runs, count)[0]


def common(a: Runs, b: Runs) -> int:
    """How many leading tokens are equal."""
    equal = 0
    for one, other in zip(a, b, strict=False):
        if one.stream != other.stream or one.first != other.first:
            break
        equal += min(one.num_tokens, other.num_tokens)
        if one.num_tokens != other.num_tokens:
            # runs are as long as can be: what follows the shorter one differs from the longer one
            break
    return equal
