"""Which code made a result."""

import subprocess
from pathlib import Path

import servesim


def commit() -> str | None:
    """Commit of the checkout that runs, with `-dirty` where files differ; None outside one."""
    here = Path(__file__).resolve().parent
    if not (here.parent.parent / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def versions() -> dict[str, str | None]:
    """Version and commit of servesim."""
    return {"servesim": servesim.__version__, "commit": commit()}
