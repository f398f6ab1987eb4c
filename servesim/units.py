"""The only unit conversions of the project.

Simulated time is an integer number of picoseconds: sums of durations are then exact in any
order, which is what lets skipped runs equal stepped ones. Files and people get seconds.
"""

PS_PER_S = 10**12
PS_PER_NS = 1_000
PS_PER_US = 1_000_000
BYTES_PER_GIB = 2**30
US_PER_S = 1e6
BYTES_PER_GB = 1e9
BYTES_PER_MB = 1e6
FLOP_PER_TFLOP = 1e12


def seconds_to_ps(seconds: float) -> int:
    """Nearest whole nanosecond, as picoseconds.

    A float of a minute or more does not resolve picoseconds, and the last bit of `exp` or `log`
    differs between processors; a nanosecond grid hides both, so a seed means the same everywhere.
    """
    return round(seconds * 1e9) * PS_PER_NS


def ps_to_seconds(ps: int) -> float:
    """Picoseconds as float seconds (exactly rounded)."""
    return ps / PS_PER_S


def gib(num_bytes: float) -> float:
    """Bytes as GiB (2**30)."""
    return num_bytes / BYTES_PER_GIB


def gib_to_bytes(amount_gib: float) -> int:
    """GiB as whole bytes."""
    return int(amount_gib * BYTES_PER_GIB)
