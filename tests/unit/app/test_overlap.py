"""Whether the host is hidden is what the engine says."""

import pytest

from servesim.app.api import setup_from


@pytest.mark.parametrize(
    ("settings", "overlaps"),
    [
        (("scheduler=vllm_v1",), False),
        (("scheduler=vllm_v1", "scheduler.async_scheduling=true"), True),
        (("scheduler=sglang",), False),
        (("scheduler=sglang", "scheduler.disable_overlap_schedule=false"), True),
        (("scheduler=trtllm",), False),
        (("scheduler=trtllm", "scheduler.disable_overlap_scheduler=false"), True),
        *(
            ((f"scheduler={name}",), False)
            for name in ("vllm_v0", "hf", "orca", "sarathi", "static")
        ),
    ],
)
def test_the_deployment_has_it_from_the_engine(settings: tuple[str, ...], overlaps: bool) -> None:
    assert setup_from(*settings).deployment.overlaps_host is overlaps
