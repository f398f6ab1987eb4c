"""What AIConfigurator's TensorRT-LLM points do not record, and what is taken instead.

TTFT tells how many prompts a step takes, as it does for vLLM: it is 4.0 to 4.3 prompts' worth with
8 users of Qwen3-32B on one H100, for prompts of 1,024, 2,048 and 4,096 alike, so the limit goes
with the prompt. Two prompts and one token per user are taken: one number, found on 18 rows of
Qwen3-32B on H100 (median error of TTFT before any calibration: 11 % with two prompts, 24 % with
one, 39 % with three, 51 % with the default of 8,192, 19 % with a prompt and 1,500 tokens).
InferenceMAX's rows do not tell it from 8,192 or 16,384, but a prompt of 8,192 would not fit into
8,192 beside one decode. Prompts are not cut, as by default.

With weights in fp8, the KV cache is in fp8: 128 users of 2,048 + 128 tokens and 64 of 4,096 + 256,
278,000 tokens each, did not queue on one H100 (Qwen3-32B), whose memory holds 174,000 in bf16 and
348,000 in fp8.

InferenceMAX's runs of 1,024 × 1,024 on less than 8 ranks tell of a first token that is delivered
with the 20th (`stream_interval`): where prompt, users, GPU and ranks are those of a run of 1,024 ×
8,192, TTFT is 13 to 19 times TPOT longer, 16 to 19 times below 64 users. These rows are doubtful.
So are rows whose TTFT is longer than with more users, all else being equal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from validation.cases.case import Case, Limits
from validation.cases.workloads import ClosedLoop

PROMPTS_PER_STEP = 2
LONGER = 1.1  # than the TTFT of a run with more users, which cannot wait less
NOTE = "max_num_tokens is not recorded: 2 prompts and a token per user taken"
STREAMED = "doubtful: TTFT holds some 19 more tokens, as with stream_interval 20"
WITH_MORE_USERS = "doubtful: TTFT is longer than that of the same engine with more users"


def limits(isl: int, users: int) -> Limits:
    """Limits of a row with prompts of `isl` tokens at most."""
    return Limits(max_num_batched_tokens=PROMPTS_PER_STEP * isl + users)


def notes(inferencemax: bool, isl: int, osl: int, tp: int) -> Iterator[str]:
    """What a reader of a row's score should know."""
    yield NOTE
    if inferencemax and (isl, osl) == (1024, 1024) and tp < 8:
        yield STREAMED


def with_doubts(cases: Sequence[Case]) -> Iterator[Case]:
    """The cases, with a note where a run of this engine with more users has a shorter TTFT."""
    by_run: dict[object, list[tuple[int, float]]] = {}
    for case in cases:
        if case.engine.name == "trtllm":
            by_run.setdefault(_but_for_users(case), []).append(_users_and_ttft_ms(case))
    for case in cases:
        users, ttft_ms = _users_and_ttft_ms(case)
        others = by_run.get(_but_for_users(case), ())
        if any(more > users and ttft_ms > LONGER * other_ms for more, other_ms in others):
            case = replace(case, notes=(*case.notes, WITH_MORE_USERS))
        yield case


def _but_for_users(case: Case) -> object:
    load = case.workload
    assert isinstance(load, ClosedLoop)
    what = case.engine, case.model, case.hardware, case.tp, case.dtype
    return what, load.prompt, load.output


def _users_and_ttft_ms(case: Case) -> tuple[int, float]:
    assert isinstance(case.workload, ClosedLoop)
    return case.workload.concurrency, case.measured["ttft_ms"]["unspecified"]
