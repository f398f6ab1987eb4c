"""What the tokens of a request are, as far as a prefix cache cares.

A prefix cache asks one thing of a full block: is it, and all before it, equal to one seen
earlier? So content answers with keys, one per full block, prompt and reply alike: two keys are
equal exactly when all tokens from the start through that block are equal (vLLM's chained block
hash, engines such as SGLang's radix tree at page granularity).

A cache that compares token by token asks for runs of virtual tokens instead: a virtual token is
a stream and a number in it, and two requests have equal tokens at a position exactly where their
virtual tokens are equal.
"""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from servesim.errors import SettingError


class TokenRun(NamedTuple):
    """Consecutive virtual tokens: numbers `first` … `first + num_tokens - 1` of `stream`."""

    stream: Hashable
    first: int
    num_tokens: int


class Content(Protocol):
    """The tokens of one request, known only by which prefixes equal which."""

    def block_keys(self, rid: int, first: int, last: int, block_size: int) -> list[Hashable]:
        """Keys of blocks `first` … `last - 1` of request `rid`, cut at `block_size` tokens."""

    def shareable_blocks(self, block_size: int) -> int:
        """How many leading blocks another request may have too; the others are its own."""

    def token_runs(self, rid: int, num_tokens: int) -> tuple[TokenRun, ...]:
        """The first `num_tokens` tokens of request `rid`; no run goes on where one ends."""


def _own(rid: int, first: int, last: int) -> list[Hashable]:
    return [("own", rid, i) for i in range(first, last)]


def _own_run(rid: int, first: int, last: int) -> tuple[TokenRun, ...]:
    return (TokenRun(("own", rid), first, last - first),) if last > first else ()


@dataclass(frozen=True, slots=True)
class Unique:
    """Tokens that no other request has."""

    def block_keys(self, rid: int, first: int, last: int, block_size: int) -> list[Hashable]:
        """Keys that equal no other request's."""
        return _own(rid, first, last)

    def shareable_blocks(self, block_size: int) -> int:
        """None."""
        return 0

    def token_runs(self, rid: int, num_tokens: int) -> tuple[TokenRun, ...]:
        """One run of the request's own."""
        return _own_run(rid, 0, num_tokens)


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The first `tokens` tokens are those of prefix `group`; the rest is the request's own."""

    group: int
    tokens: int

    def block_keys(self, rid: int, first: int, last: int, block_size: int) -> list[Hashable]:
        """Group keys for the blocks wholly inside the shared part, own keys after it."""
        shared = min(last, max(first, self.tokens // block_size))
        keys: list[Hashable] = [("prefix", self.group, i) for i in range(first, shared)]
        return keys + _own(rid, shared, last)

    def shareable_blocks(self, block_size: int) -> int:
        """Those wholly inside the shared part."""
        return self.tokens // block_size

    def token_runs(self, rid: int, num_tokens: int) -> tuple[TokenRun, ...]:
        """The prefix, then the request's own."""
        shared = min(self.tokens, num_tokens)
        prefix = (TokenRun(("prefix", self.group), 0, shared),) if shared else ()
        return prefix + _own_run(rid, shared, num_tokens)


@dataclass(frozen=True, slots=True)
class Inherited:
    """A session's turn: it begins with tokens of its previous turn, the rest is its own.

    Tokens are named by the turn that first had them at their place. A turn that has them in
    common with that one has all tokens before in common, too.

    Attributes:
        spans: (turn's request number, end): the tokens up to `end`, and from the end of the span
            before, are that turn's. The request's own tokens, after the last, are not listed.
        passed_on: how many leading tokens the next turn begins with.
    """

    spans: tuple[tuple[int, int], ...]
    passed_on: int = 0

    @classmethod
    def of(
        cls, previous: "Inherited | None", rid: int, shared_tokens: int, passed_on: int
    ) -> "Inherited":
        """Turn `rid`, which begins with `shared_tokens` tokens of the turn `rid − 1` before it."""
        spans: list[tuple[int, int]] = []
        begin = 0
        for owner, end in (*(previous.spans if previous else ()), (rid - 1, shared_tokens)):
            if begin < shared_tokens and begin < end:
                begin = min(end, shared_tokens)
                spans.append((owner, begin))
        return cls(tuple(spans), passed_on)

    def block_keys(self, rid: int, first: int, last: int, block_size: int) -> list[Hashable]:
        """Keys of the turn that first had the block's last token there."""
        keys: list[Hashable] = []
        for owner, end in (*self.spans, (rid, last * block_size)):
            known = min(last, end // block_size)
            begin = first + len(keys)
            keys += _own(owner, begin, known)
        return keys

    def shareable_blocks(self, block_size: int) -> int:
        """Those that the turn before has, or the turn after."""
        inherited = self.spans[-1][1] if self.spans else 0
        return max(inherited, self.passed_on) // block_size

    def token_runs(self, rid: int, num_tokens: int) -> tuple[TokenRun, ...]:
        """A run per turn that the tokens come from."""
        runs: list[TokenRun] = []
        begin = 0
        for owner, end in (*self.spans, (rid, num_tokens)):
            runs += _own_run(owner, begin, min(end, num_tokens))
            begin = min(end, num_tokens)
        return tuple(runs)


@dataclass(frozen=True, slots=True)
class TraceBlocks:
    """Chained block ids from a trace: id i stands for all tokens through its i-th block.

    `ids` may run on into the reply, whose blocks then can be hit by a later turn.
    """

    ids: tuple[int, ...]
    block_size: int

    def check(self, block_size: int) -> None:
        """Refuse an engine block size at which the trace's ids say nothing."""
        if block_size % self.block_size and self.block_size % block_size:
            raise SettingError(
                "block_size",
                block_size,
                f"the trace has ids per {self.block_size} tokens: the engine's block must be a "
                f"multiple or a divisor of that; nearest: {self.block_size}",
            )

    def block_keys(self, rid: int, first: int, last: int, block_size: int) -> list[Hashable]:
        """The id of the last trace block inside each block (or a part of one)."""
        self.check(block_size)
        if block_size >= self.block_size:
            per_block = block_size // self.block_size
            known = min(last, max(first, len(self.ids) // per_block))
            ends = range(first, known)
            keys: list[Hashable] = [("trace", self.ids[(i + 1) * per_block - 1], 0) for i in ends]
        else:
            parts = self.block_size // block_size
            known = min(last, max(first, len(self.ids) * parts))
            keys = [("trace", self.ids[i // parts], i % parts) for i in range(first, known)]
        return keys + _own(rid, known, last)

    def shareable_blocks(self, block_size: int) -> int:
        """Those that the trace has ids for."""
        return len(self.ids) * self.block_size // block_size

    def token_runs(self, rid: int, num_tokens: int) -> tuple[TokenRun, ...]:
        """A run per trace block, named by its id: requests part at block boundaries only."""
        size = self.block_size
        known = min(num_tokens, len(self.ids) * size)
        runs = [
            TokenRun(("trace", self.ids[first // size]), 0, min(size, known - first))
            for first in range(0, known, size)
        ]
        return (*runs, *_own_run(rid, known, num_tokens))


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids themselves, prompt and the reply that will be sampled."""

    ids: tuple[int, ...]

    def block_keys(self, rid: int, first: int, last: int, block_size: int) -> list[Hashable]:
        """Chained digests; blocks beyond the given ids are the request's own."""
        known = min(last, len(self.ids) // block_size)
        keys: list[Hashable] = list(_chain(self.ids, known, block_size)[first:])
        return keys + _own(rid, max(first, known), last)

    def shareable_blocks(self, block_size: int) -> int:
        """Those full of given ids."""
        return len(self.ids) // block_size

    def token_runs(self, rid: int, num_tokens: int) -> tuple[TokenRun, ...]:
        """The ids themselves, consecutive ones as one run; beyond them the request's own."""
        ids = self.ids[:num_tokens]
        begins = [i for i, token in enumerate(ids) if not i or token != ids[i - 1] + 1]
        ends = [*begins[1:], len(ids)] if begins else []
        runs = [TokenRun("token", ids[a], b - a) for a, b in zip(begins, ends, strict=True)]
        return (*runs, *_own_run(rid, len(ids), num_tokens))


def _chain(ids: Sequence[int], num_blocks: int, block_size: int) -> list[bytes]:
    digests, parent = [], b""
    for i in range(num_blocks):
        block = repr(ids[i * block_size : (i + 1) * block_size]).encode()
        parent = hashlib.blake2b(parent + block, digest_size=16).digest()
        digests.append(parent)
    return digests
