"""Composing a configuration from code."""

import os
from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from servesim.app.paths import conf_dir

_DATA = "SERVESIM_DATA"


def composed(
    overrides: Sequence[str], with_hydra: bool = False, root: str = "config"
) -> DictConfig:
    """The root configuration under `overrides`; works inside another Hydra application too.

    Args:
        overrides: settings as on the command line.
        with_hydra: keep Hydra's own node, which knows the chosen options.
        root: the root's file in conf/.
    """
    drop_empty_data_dir()
    # Hydra refuses to be initialised twice, and forgets its instance when it is done
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return compose(root, overrides=list(overrides), return_hydra_config=with_hydra)
    finally:
        GlobalHydra.instance().hydra = outer


def drop_empty_data_dir() -> None:
    """Take an empty $SERVESIM_DATA for an unset one, as shells and other tools do.

    `${oc.env:NAME,default}` in a workload's YAML uses the default only where the name is unset.
    """
    if os.environ.get(_DATA) == "":
        del os.environ[_DATA]
