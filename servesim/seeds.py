"""Named random streams: every draw of a run comes from `stream(seed, name, ...)`.

A stream is a function of its name and numbers alone, so adding a draw somewhere never shifts the
draws elsewhere, and two policies under one seed see the same requests (common random numbers).
"""

import hashlib

import numpy as np


def stream(seed: int, name: str, *ids: int) -> np.random.Generator:
    """A generator of its own for (seed, name, ids).

    Args:
        seed: the run's seed, 0 or more.
        name: what is drawn, e.g. "arrivals".
        ids: further coordinates, e.g. a request number.
    """
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4, 8, 12)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words, *ids])))
