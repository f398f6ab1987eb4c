"""Where the public measurements are; none of them is part of the repository."""

import os
from pathlib import Path

from servesim.errors import MissingDataError

BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "data"
REPOSITORIES = {
    "aiconfigurator": (
        "github.com/ai-dynamo/aiconfigurator at 095f58a, aic-core/src/aiconfigurator_core/systems"
    ),
    "azure-llm-2023": "github.com/Azure/AzurePublicDataset at b469a11",
    "gpullm-adapter": "github.com/FerranAgulloLopez/GPULLMAdapterOptimization at bae36e2",
    "llmservingsim": "github.com/casys-kaist/LLMServingSim at 5daddb2",
    "splitwise-sim": "github.com/Mutinifni/splitwise-sim at 8f99e7d",
    "vidur": "github.com/microsoft/vidur at 7d47513",
}


def data_dir() -> Path:
    """The folder with one sub-folder per source: $SERVESIM_DATA, else ../shared/data.

    Raises:
        MissingDataError: there is no such folder.
    """
    set_to = os.environ.get("SERVESIM_DATA")
    folder = Path(set_to) if set_to else BESIDE_THE_CHECKOUT
    if not folder.is_dir():
        known = "; ".join(f"{name}/ from {where}" for name, where in REPOSITORIES.items())
        raise MissingDataError(
            f"no public measurements at {folder}: set SERVESIM_DATA to a folder that holds {known}"
        )
    return folder


def source_dir(source: str) -> Path:
    """The folder of one source of `REPOSITORIES`, or MissingDataError."""
    folder = data_dir() / source
    if not folder.is_dir():
        raise MissingDataError(
            f"no {source}/ in {folder.parent}: it comes from {REPOSITORIES[source]}; "
            "set SERVESIM_DATA to the folder that holds it"
        )
    return folder
