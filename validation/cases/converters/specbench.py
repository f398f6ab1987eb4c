"""spec-bench-vllm: vLLM 0.6.6 (V0) on one A100 with and without speculation, in closed loops.

The rows without speculation are cases; the others are listed as not covered. Only the mean lengths
are recorded. Articles cut to a size (`cnn_dailymail_1k`, `thucnews_1k`) are the same length but
for little: of the latter, the p99 of TTFT with one user is 1.3 to 1.4 times the median where a
prompt has 500 and more tokens, which is a coefficient of variation of 0.15. Replies of the former
come to 64.0, 127.8 or 254 tokens, so nearly all end at a cap and are taken as equally long; but not
those of `cnn_dailymail_8k` (470 to 490 of 512), and not those of `thucnews`: users whose replies
are equally long share their prefills, and the median TTFT of 4 users of `cnn_dailymail_0.25k` is
twice that of one, of `cnn_dailymail_8k` and of `thucnews_0.125k` the same. These are given the
spread of the prompts. The lengths of all other sets are taken as log-normal with the spread of
conversations, replies up to 1,024 tokens: 32 users of `spec-bench-conversation` were done after
14.23 s, which is the first token and 1,024 further ones at the mean gap.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from validation.cases.case import Case, Engine, Source
from validation.cases.converted import Converted, measured, place
from validation.cases.published import slug
from validation.cases.rows import Row, read_csv
from validation.cases.workloads import ClosedLoop, Fixed, LogNormal

PATTERNS = ("spec-bench-vllm/*.csv",)
COLUMNS = (
    *("round", "method", "task", "subtask", "model", "num_spec_tokens", "max_concurrency"),
    *("num_prompts", "duration_s", "in_tokens", "out_tokens", "output_throughput"),
    *(f"{s}_{m}_ms" for m in ("ttft", "tpot", "itl") for s in ("mean", "median", "p99")),
)
WITHOUT_SPECULATION = ("vanilla", "nospec")
CONVERSATION_CV = 1.1  # coefficient of variation of ShareGPT's replies
ARTICLES_CV = 0.15
AT_CAP = 0.99  # of a cap, a mean reply from which on all are taken to end there
LONGEST_REPLY = 1024
_SIZED = re.compile(r"^(cnn_dailymail|thucnews)_[\d.]+k$")
_FOUR_BITS = re.compile(r"int4|awq|gptq", re.IGNORECASE)
COLUMNS_OF = {
    **{
        f"{m}_ms": {"mean": f"mean_{m}_ms", "p50": f"median_{m}_ms", "p99": f"p99_{m}_ms"}
        for m in ("ttft", "tpot", "itl")
    },
    "makespan_s": {"value": "duration_s"},
    "output_tokens_per_s": {"value": "output_throughput"},
}


def convert(path: Path) -> Iterator[Converted]:
    """One case per row."""
    for row in read_csv(path, COLUMNS):
        yield Converted(_case(row, path.name))


def _case(row: Row, file: str) -> Case:
    published, method = row.text("model"), row.text("method")
    found = place("vllm", published, "A100-80GB")
    four_bits = bool(_FOUR_BITS.search(published))
    users = row.whole("max_concurrency")
    return Case(
        name=slug(
            *("specbench", row.text("round"), method, found.model, row.text("subtask")),
            *(f"k{max(row.integer('num_spec_tokens'), 0)}", f"c{users}"),
        ),
        source=Source(
            name="specbench",
            repository="github.com/spitzblattr/spec-bench-vllm",
            commit="c79c615501571aa7a8c6d752c23ea4bb2933d552",
            licence=None,
            file=file,
            row=f"line {row.line}",
        ),
        engine=Engine("vllm", "0.6.6.post1"),
        model=found.model,
        hardware=found.hardware,
        dtype="int4" if four_bits else "bf16",
        workload=ClosedLoop(
            concurrency=users,
            num_requests=row.whole("num_prompts"),
            prompt=_prompts(row),
            output=_replies(row),
        ),
        measured=measured(row, COLUMNS_OF),
        counted_from="sent",
        not_covered=_why_not(method, four_bits) or found.not_covered,
        notes=("only the mean lengths are recorded",),
    )


def _prompts(row: Row) -> Fixed | LogNormal:
    mean, articles = row.positive("in_tokens"), _articles(row)
    if articles is None:
        return LogNormal(mean, CONVERSATION_CV)
    return LogNormal(mean, ARTICLES_CV) if articles == "thucnews" else Fixed(max(round(mean), 1))


def _replies(row: Row) -> Fixed | LogNormal:
    mean, articles = row.positive("out_tokens"), _articles(row)
    if articles is None:
        return LogNormal(mean, CONVERSATION_CV, LONGEST_REPLY)
    cap = 2 ** round(math.log2(mean))
    if articles == "thucnews" or mean < AT_CAP * cap:
        return LogNormal(mean, ARTICLES_CV)
    return Fixed(max(round(mean), 1))


def _articles(row: Row) -> str | None:
    """Which articles the prompts are, where they were cut to a size."""
    found = _SIZED.match(row.text("subtask"))
    return found[1] if found else None


def _why_not(method: str, four_bits: bool) -> str | None:
    if not method.endswith(WITHOUT_SPECULATION):
        return "speculation in vLLM V0 (batch expansion)"
    if four_bits:
        return "4-bit weights with 16-bit arithmetic have no cost"
    return None
