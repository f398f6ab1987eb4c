"""Fit length laws to a public trace and say how well they fit.

    python -m validation.fit_lengths source=azure file=conv

prints the trace's figures beside those of the fit, and the YAML of conf/workload.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from servesim import checks, units
from servesim.errors import ServesimError
from servesim.workload.readers.azure import AzureTrace
from validation.data import source_dir
from validation.fit_workload import report

AZURE_FILES = ("conv", "code")


@dataclass
class Settings:
    """Command line, as key=value.

    Attributes:
        source: whose trace; azure.
        file: which of its traces; conv or code.
        num_ranges: ranges of prompt lengths that get a law of replies each.
        max_ks: greatest KS distance of a quantile table from its sample.
    """

    source: str = "azure"
    file: str = "conv"
    num_ranges: int = 6
    max_ks: float = 0.02


def read(settings: Settings) -> report.Trace:
    """The trace, or an error that names the setting."""
    checks.choice("source", settings.source, ("azure",))
    checks.choice("file", settings.file, AZURE_FILES)
    checks.whole("num_ranges", settings.num_ranges, at_least=1)
    checks.fraction("max_ks", settings.max_ks, open_at_zero=True)
    name = f"AzureLLMInferenceTrace_{settings.file}.csv"
    requests = AzureTrace(path=str(source_dir("azure-llm-2023") / name)).load(0).requests
    return report.Trace(
        arrivals_s=np.array([units.ps_to_seconds(r.arrival_ps) for r in requests]),
        prompts=np.array([r.prompt_tokens for r in requests]),
        outputs=np.array([r.output_tokens for r in requests]),
    )


def main(arguments: Sequence[str]) -> int:
    """Print the report; 2 on a mistake in the arguments or the data."""
    try:
        merged = OmegaConf.merge(
            OmegaConf.structured(Settings), OmegaConf.from_dotlist(list(arguments))
        )
        settings = Settings(**{str(name): value for name, value in merged.items()})
        for line in report.lines(read(settings), settings.num_ranges, settings.max_ks):
            print(line)
    except (ServesimError, OmegaConfBaseException) as error:
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
