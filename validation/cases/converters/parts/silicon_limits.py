"""Limits that AIConfigurator's points do not record, and what is taken instead.

InferenceMAX starts vLLM and SGLang without a prefix cache and vLLM with 0.9 of the memory (its
scripts of autumn 2025, from memory; 0.9 is the default, too). It starts vLLM with asynchronous
scheduling and `max_num_seqs` = users as well, which is not taken: the latter changes nothing here,
and the former was not there when host times were calibrated.

The other origin's runs that wait for memory tell their limits (`TUNED_SHARE`; how they were found
and how far they hold is in validation/cases/README.md):

* vLLM: a step takes one prompt of nominal length and one token per user. Prompts are 16 tokens
  longer (a chat template's; taken off the budget here, as lengths are nominal), so a step in which
  all other users decode does not take all of one. With 128 or 64 users on two H100s, a larger
  budget leaves TPOT 16 % short at 4,096 × 1,024 and 7 % at 4,096 × 512: what is missing are the
  prompts computed anew after preemptions, as often as they happen where a prompt is admitted by its
  first chunk, on memory that does not hold the rest of it, and with nothing of it in a prefix
  cache. With fewer users the same budget makes users who end together wait one step more for one
  another, which is the TTFT that was measured.
* The share of the memory: 0.85 for vLLM; 0.7925 for SGLang, which a flag of 0.8 would give, as
  that is a share of what is free before loading. The defaults of the releases, 0.9 and 0.84 to
  0.87, hold 4.0 GiB per H100 more than vLLM's runs had, and 3 to 6 GiB more than SGLang's.
* SGLang's rows are of two campaigns. Where lengths are powers of two, so are the users, and TTFT is
  half of all users' prefills, at 16 users as at 128: prefill batches go first and alone, by
  default, so users of equal replies end, send and wait together. Where lengths are round thousands,
  users are planned (20, 112, 352), times are rounded to 10 µs, and TTFT is a half to a fifth of
  that. It is what the first wave adds to the mean of ten waves, and five prompts' worth: users are
  apart. Decodes that ride in prefill batches put them apart, so `enable_mixed_chunk` is taken
  there; the source does not say it. Lengths of 0.8 to 1.0 do so as well, but then fit with five
  waves only, and with a TPOT a fifth too long. So taken, TTFT of the 9 rows with up to 128 users on
  H200 is off by 12 % at the median (2026-11-30). Not explained: 1,000 × 100 with 160 users and tp
  1, which is in step (1,612 ms), and rows with 240 users and more, whose TTFT is 1.3 to 14 times
  the simulated one, the more so the faster the GPUs are: up to 20,000 tokens per second leave
  through the front end, at any tp (see `FrontEnd`: one that saturates is not modelled).

TensorRT-LLM's are in `silicon_trtllm`.
"""

from collections.abc import Iterator
from dataclasses import replace

from validation.cases.case import Limits

# share of the GPU's memory, of the origin that is not InferenceMAX; tuned, one number per engine
TUNED_SHARE = {"vllm": 0.85, "sglang": 0.7925}
BEYOND_NOMINAL = 16  # tokens, about what a chat template adds to a prompt; tuned
ROUND_LENGTH = 1000  # tokens: prompts of SGLang's planned campaign are multiples


def limits(engine: str, inferencemax: bool, isl: int, users: int) -> Limits:
    """What is not recorded and decides who waits: memory, tokens per step, kind of batches.

    Args:
        engine: as the source names it.
        inferencemax: whether the row is InferenceMAX's.
        isl: tokens of a prompt.
        users: of the closed loop.
    """
    if engine not in TUNED_SHARE:
        return Limits()
    if inferencemax:
        return Limits(enable_prefix_caching=False)
    found = Limits(gpu_memory_utilization=TUNED_SHARE[engine])
    if engine == "vllm":
        tokens = max(isl - BEYOND_NOMINAL, 1) + users
        return replace(found, max_num_batched_tokens=tokens, enable_prefix_caching=False)
    return replace(found, enable_mixed_chunk=True) if isl % ROUND_LENGTH == 0 else found


def notes(engine: str, inferencemax: bool, isl: int) -> Iterator[str]:
    """Which limits are not recorded, and what was taken."""
    if inferencemax:
        if engine in TUNED_SHARE:
            yield "no prefix cache, as InferenceMAX starts its servers"
        return
    yield "the number of requests is not recorded: 10 per user taken"
    if engine in TUNED_SHARE:
        share = TUNED_SHARE[engine]
        yield f"the share of the memory is not recorded: {share:g} taken, as other runs tell"
    if engine == "vllm":
        yield "max_num_batched_tokens is not recorded: a prompt and a token per user taken"
        yield "whether there is a prefix cache is not recorded: none taken"
    if engine == "sglang" and isl % ROUND_LENGTH == 0:
        yield "enable_mixed_chunk is not recorded: taken, as users do not wait for each other"
