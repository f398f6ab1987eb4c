"""Dense models without windows keep the step times that the README's figures rest on."""

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from servesim.cost.roofline import Roofline
from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from servesim.records import Decodes, StepPlan, Work

CONF = Path(__file__).parents[3] / "conf" / "model"
COST = Roofline(0.79, 0.82, 6e-4, 0.0, 0.3, 5e-6)
H100 = GPU("H100 SXM5", 79.65, 3350, {"bf16": 989.4, "fp8": 1978.9}, 450)
PLANS = (
    StepPlan((Work(0, 1, 99, 0, True),)),
    StepPlan((), decodes=Decodes(64, 64 * 900, 4000)),
    StepPlan((Work(0, 2048, 0, 0, False),)),
    StepPlan(
        (Work(0, 512, 3000, 0, True), Work(1, 5, 700, 4, True), Work(2, 1, 250, 0, True)),
        decodes=Decodes(30, 30000, 2500),
    ),
    StepPlan((Work(0, 1, 120000, 0, True), Work(1, 1, 40, 0, True))),
)
RUN = Decodes(17, 17 * 1234, 5000)

# picoseconds; computed by the roofline before it knew of experts, windows and latents: each plan,
# then the first 500 steps of the run and the last of them
BEFORE = {
    ("llama3.1_8b", 1): (
        *(6068665500, 8812278000, 38581529000, 12413548000, 11791698030),
        *(3633621221250, 7469625615),
    ),
    ("llama3.1_8b", 2): (
        *(3658216700, 5274661200, 27864408000, 8954995000, 6523555994),
        *(2159814805750, 4420819077),
    ),
    ("llama3.1_70b", 1): (
        *(51213831600, 58072776600, 366344880000, 103052541000, 65521233012),
        *(27105118138500, 54716187846),
    ),
    ("llama3.1_70b", 2): (
        *(26726334300, 31379144800, 224040656000, 63267375000, 33899453006),
        *(14267612819250, 28788201423),
    ),
    ("qwen2.5_7b", 1): (
        *(5749729500, 6950042000, 35872376000, 11020193000, 8253518750),
        *(3137049531250, 6362640375),
    ),
    ("qwen2.5_7b", 2): (
        *(3457837800, 4245346800, 24605696000, 7719516000, 4712766396),
        *(1883805070500, 3811882918),
    ),
    ("qwen3_32b", 1): (
        *(23895697900, 29382865400, 169758166000, 49487199000, 35341643018),
        *(13146413332750, 26697588769),
    ),
    ("qwen3_32b", 2): (
        *(12897558500, 16252840000, 105703191000, 31004152000, 18630300030),
        *(7125739721250, 14453862615),
    ),
}


@pytest.mark.parametrize(("name", "tp"), BEFORE)
def test_step_times_of_dense_models_are_those_of_before(name: str, tp: int) -> None:
    model = instantiate(OmegaConf.load(CONF / f"{name}.yaml"), _convert_="all")
    timer = COST.bind(Deployment(model, H100, tp=tp))
    run = timer.decode_run(RUN, 500)
    assert run.steps == 500
    steps = tuple(timer.step_time(plan).duration_ps for plan in PLANS)
    assert (*steps, run.total(500), run.at(499)) == BEFORE[name, tp]
