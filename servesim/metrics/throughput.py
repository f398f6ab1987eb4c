"""Throughput columns, over the time from the first arrival to the last token."""

from dataclasses import dataclass

from servesim.metrics.base import Row, duration_s, rate
from servesim.records import RunRecord


@dataclass(frozen=True, slots=True)
class Throughput:
    """Finished requests and tokens per second."""

    def measure(self, run: RunRecord) -> Row:
        """Tokens of unfinished requests count as far as they were delivered."""
        seconds = duration_s(run)
        finished = [r for r in run.requests if r.status == "finished"]
        output = sum(r.output_tokens for r in run.requests)
        prompt = sum(r.prompt_tokens for r in run.requests if r.first_token_ps is not None)
        return {
            "request_throughput_rps": rate(len(finished), seconds),
            "output_throughput_tokens_per_s": rate(output, seconds),
            "total_throughput_tokens_per_s": rate(output + prompt, seconds),
            "prompt_tokens": prompt,
            "output_tokens": output,
        }
