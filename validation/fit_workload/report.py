"""What a fit of lengths looks like beside the trace it was made from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from servesim.workload.lengths import Quantiles, QuantilesByPrompt
from validation.fit_workload import arrivals, laws

Ints = NDArray[np.int64]

# Below this part of the variance, ranges of prompts only add parameters.
WORTHWHILE = 0.05


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in seconds and lengths in tokens, one entry per request."""

    arrivals_s: NDArray[np.float64]
    prompts: Ints
    outputs: Ints


@dataclass(frozen=True, slots=True)
class Fit:
    """Laws of both lengths, and a load drawn from them at evenly spread ranks."""

    prompt: Quantiles
    output: QuantilesByPrompt
    prompts: Ints
    outputs: Ints


def fit(trace: Trace, num_ranges: int, max_ks: float) -> Fit:
    """Quantile tables of prompts and, for each range of prompts, of replies."""
    prompt = laws.fit_quantiles(trace.prompts, max_ks)
    output = laws.fit_by_prompt(trace.prompts, trace.outputs, num_ranges, max_ks)
    prompts = prompt.at(laws.RANKS)
    # Fractions of multiples of the golden ratio: spread evenly within every range of prompts.
    golden = np.arange(laws.NUM_RANKS, dtype=np.float64) * ((5**0.5 - 1) / 2)
    ranks: NDArray[np.float64] = golden - np.floor(golden)
    return Fit(prompt, output, prompts, output.at_given(ranks, prompts))


def lines(trace: Trace, num_ranges: int, max_ks: float) -> Iterator[str]:
    """The report, ending in YAML for conf/workload."""
    fitted = fit(trace, num_ranges, max_ks)
    yield from _arrival_lines(trace)
    # The fit of the even rows against the odd ones tells what more points would only memorise.
    even = Trace(trace.arrivals_s[::2], trace.prompts[::2], trace.outputs[::2])
    held_out = fit(even, num_ranges, max_ks)
    for name, measured, law, half in (
        ("prompt tokens", trace.prompts, fitted.prompts, held_out.prompts),
        ("output tokens", trace.outputs, fitted.outputs, held_out.outputs),
    ):
        yield from _length_lines(name, measured, law)
        yield f"  KS, fit to even rows against odd rows: {laws.ks(measured[1::2], half):.3f}"
    yield from _dependence_lines(trace, fitted)
    yield from _yaml_lines(fitted)


def _arrival_lines(trace: Trace) -> Iterator[str]:
    n, span_s = len(trace.prompts), float(trace.arrivals_s[-1] - trace.arrivals_s[0])
    yield f"{n} requests in {span_s:.1f} s, {(n - 1) / span_s:.3f} requests/s"
    yield (
        f"CV of gaps {arrivals.gap_cv(trace.arrivals_s):.3f}, relative to the 50 gaps around each "
        f"{arrivals.local_gap_cv(trace.arrivals_s):.3f} (Poisson: 1 and 0.98)"
    )


def _length_lines(name: str, measured: Ints, law: Ints) -> Iterator[str]:
    lognormal = laws.fit_lognormal(measured)
    columns = {"measured": measured, "table": law, "log-normal": lognormal.at(laws.RANKS)}
    yield f"\n{name:<28}" + "".join(f"{column:>12}" for column in columns)
    yield "  mean" + " " * 22 + "".join(f"{v.mean():12.1f}" for v in columns.values())
    for percent in (50, 90, 99):
        cells = "".join(f"{np.percentile(v, percent):12.0f}" for v in columns.values())
        yield f"  p{percent}" + " " * 23 + cells
    shares = "".join(f"{_top_share(v):12.3f}" for v in columns.values())
    yield "  tokens in the longest 10 %  "[:28] + shares
    distances = "".join(f"{laws.ks(measured, v):12.3f}" for v in columns.values())
    yield "  KS distance" + " " * 15 + distances


def _top_share(values: Ints) -> float:
    ordered = np.sort(values)
    return float(ordered[int(0.9 * len(ordered)) :].sum() / ordered.sum())


def _dependence_lines(trace: Trace, fitted: Fit) -> Iterator[str]:
    yield f"\n{'both':<28}{'measured':>12}{'table':>12}{'independent':>12}"
    both = ((trace.prompts, trace.outputs), (fitted.prompts, fitted.outputs))
    shares = [p.sum() / (p.sum() + o.sum()) for p, o in both]
    yield f"  {'prompt share of all tokens':<26}" + "".join(f"{s:12.3f}" for s in shares)
    ranks = [float(spearmanr(p, o).statistic) for p, o in both]
    yield f"  {'rank correlation':<26}" + "".join(f"{r:12.3f}" for r in [*ranks, 0.0])
    # KV held over a request's life grows with prompt × reply: this is what dependence does to it.
    ratios = [(p * o).mean() / (p.mean() * o.mean()) for p, o in both]
    yield f"  {'E[prompt·reply]/(E·E)':<26}" + "".join(f"{r:12.3f}" for r in [*ratios, 1.0])
    which = np.searchsorted(np.asarray(fitted.output.up_to_tokens), trace.prompts)
    means = [trace.outputs[which == i].mean() for i in range(len(fitted.output.tables))]
    explained = np.asarray(means)[which].var() / trace.outputs.var()
    yield f"  the range of the prompt explains {explained:.0%} of the variance of replies"
    if explained < WORTHWHILE:
        yield "  which is next to nothing: use num_ranges=1"


def _yaml_lines(fitted: Fit) -> Iterator[str]:
    target = "servesim.workload.lengths"
    yield "\nprompt:"
    yield f"  _target_: {target}.Quantiles"
    yield f"  points: {_points(fitted.prompt.points)}"
    yield "output:"
    if len(fitted.output.tables) == 1:
        yield f"  _target_: {target}.Quantiles"
        yield f"  points: {_points(fitted.output.tables[0])}"
        return
    yield f"  _target_: {target}.QuantilesByPrompt"
    yield f"  up_to_tokens: {list(fitted.output.up_to_tokens)}"
    yield "  tables:"
    for table in fitted.output.tables:
        yield f"    - {_points(table)}"


def _points(points: Sequence[Sequence[float]]) -> str:
    return "[" + ", ".join(f"[{p:g}, {tokens}]" for p, tokens in points) + "]"
