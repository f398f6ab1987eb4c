import pytest

from servesim.errors import MissingDataError, TraceError
from servesim.workload.readers.azure import AzureTrace
from validation.data import source_dir

MADE_UP = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 10:00:00.0000000,100,10\r\n"
    "2023-11-16 10:00:00.1234567,200,20\r\n"
)


def trace(tmp_path, text=MADE_UP, **settings):
    path = tmp_path / "azure.csv"
    path.write_bytes(text.encode())
    return AzureTrace(path=str(path), **settings)


def test_the_format(tmp_path):
    requests = trace(tmp_path).load(0).requests
    assert [(r.arrival_ps, r.prompt_tokens, r.output_tokens) for r in requests] == [
        (0, 100, 10),
        (123_456_700_000, 200, 20),
    ]


def test_the_format_of_2024(tmp_path):
    text = MADE_UP.replace(".0000000", "+00:00").replace(".1234567", ".123456+00:00")
    assert trace(tmp_path, text).load(0).requests[1].arrival_ps == 123_456_000_000


def test_a_reply_of_no_tokens_is_refused_with_its_line(tmp_path):
    with pytest.raises(TraceError, match=r"azure\.csv:3: GeneratedTokens=0 must be 1 or more"):
        trace(tmp_path, MADE_UP.replace(",20\r", ",0\r")).load(0)


@pytest.mark.parametrize(
    ("name", "rows", "first", "mean_prompt"),
    [("conv", 19_366, (374, 44), 1154.7), ("code", 8_819, (4808, 10), 2047.8)],
)
def test_the_public_files(name, rows, first, mean_prompt):
    try:
        path = source_dir("azure-llm-2023") / f"AzureLLMInferenceTrace_{name}.csv"
        requests = AzureTrace(path=str(path)).load(0).requests
    except MissingDataError as missing:
        pytest.skip(str(missing))
    assert len(requests) == rows
    assert (requests[0].prompt_tokens, requests[0].output_tokens) == first
    assert sum(r.prompt_tokens for r in requests) / rows == pytest.approx(mean_prompt, abs=0.05)
    assert min(r.output_tokens for r in requests) > 0
