"""Contents of LLMServingSim's prompts: chained ids of 16-token blocks, by request."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from servesim.errors import MissingDataError, TraceError
from validation.cases.rows import read_jsonl
from validation.data import data_dir

BLOCK_SIZE = 16
COLUMNS = ("input_toks", "output_toks", "arrival_time_ns", "hash_ids")
_FOLDERS = ("workloads", "dataset")
_BELOW_DATA = ("llmservingsim/workloads", "llmservingsim/ispass26-artifact/dataset")


def of_lengths(run: Path, lengths: Sequence[tuple[int, int]]) -> list[list[int]] | None:
    """The block ids of the workload with these (prompt, reply), in order, or None."""
    for path in _workloads(run):
        workload = read_jsonl(path, COLUMNS)
        if [(row.whole("input_toks"), row.whole("output_toks")) for row in workload] == lengths:
            return [_ids(row.values["hash_ids"], path, row.line) for row in workload]
    return None


def of_totals(
    run: Path, requests: int, prompt_tokens: int, output_tokens: int
) -> tuple[list[tuple[float, int, int]], list[list[int]]] | None:
    """(arrival in s, prompt, reply) and block ids of the workload of this size, or None.

    Replies may end before their recorded length: a workload whose replies come to more tokens than
    were generated fits if there is no exact one.
    """
    close = None
    for path in _workloads(run):
        rows, ids = read_workload(path)
        sums = len(rows), sum(row[1] for row in rows), sum(row[2] for row in rows)
        if sums == (requests, prompt_tokens, output_tokens):
            return rows, ids
        if sums[:2] == (requests, prompt_tokens):
            close = rows, ids
    return close


def read_workload(path: Path) -> tuple[list[tuple[float, int, int]], list[list[int]]]:
    """(arrival in s, prompt, reply) and block ids of each request."""
    workload = read_jsonl(path, COLUMNS)
    rows = [
        (row.number("arrival_time_ns") / 1e9, row.whole("input_toks"), row.whole("output_toks"))
        for row in workload
    ]
    return rows, [_ids(row.values["hash_ids"], path, row.line) for row in workload]


def _workloads(run: Path) -> Iterator[Path]:
    """Near the run, in the folders of its repository; else in those of the public data."""
    folders = [parent / name for parent in run.resolve().parents for name in _FOLDERS]
    with suppress(MissingDataError):  # the run lies elsewhere, and so may its workload
        folders += [data_dir() / name for name in _BELOW_DATA]
    for folder in dict.fromkeys(folders):
        yield from sorted(folder.glob("*.blocks16.jsonl"))


def _ids(value: object, path: Path, line: int) -> list[int]:
    if isinstance(value, list) and all(isinstance(block, int) for block in value):
        return value
    raise TraceError(str(path), line, "hash_ids: must be a list of whole numbers")
