"""What became of the requests. Nothing is dropped: every request of the load is in one count."""

from collections import Counter
from dataclasses import dataclass

from servesim.metrics.base import Row, duration_s
from servesim.records import RunRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts by status, and how long it all took."""

    def measure(self, run: RunRecord) -> Row:
        """Requests by status; the commonest reason for a rejection."""
        counts = Counter(r.status for r in run.requests)
        reasons = Counter(_kind(r.reason) for r in run.requests if r.status == "rejected")
        return {
            "requests": len(run.requests),
            "finished": counts["finished"],
            "rejected": counts["rejected"],
            "unfinished": counts["unfinished"],
            "failed": counts["failed"],
            "rejected_reason": reasons.most_common(1)[0][0] if reasons else None,
            "duration_s": duration_s(run),
        }


def _kind(reason: str) -> str:
    """The reason without the request's own figure: `prompt + max_tokens > max_model_len 4096`."""
    left, _, right = reason.partition(" = ")
    return f"{left} {right.partition(' ')[2]}" if right else reason
