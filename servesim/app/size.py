"""`servesim size`: the KV cache that an engine gets on a GPU, and what fits into it."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from servesim.app.compose import composed
from servesim.app.files import to_json
from servesim.app.help import settings_text
from servesim.app.hydra_errors import USER_ERRORS, reworded
from servesim.app.size_report import row_of
from servesim.app.size_requests import requests_of
from servesim.app.size_setup import sizing_of
from servesim.app.size_table import print_answer
from servesim.errors import ServesimError

ROOT = "size"
_HELP = ("-h", "--help")
_HEAD = """\
servesim size: the KV cache that an engine gets on a GPU, and what fits into it

  servesim size model=llama3.1_8b hardware=h100_sxm            every term, blocks, tokens, log
  servesim size model=qwen3_32b hardware=h100_sxm tp=2 kv_dtype=fp8 max_model_len=32768
  servesim size hf_config=path/to/config.json hardware=l40s    any published configuration
  servesim size ... size.weights_gib=14.99 size.kv_cache_gib=3.81   measured instead of derived
  servesim size ... scheduler=vllm_v1_0.11                     another engine or release
  servesim size ... output.format=json                         one JSON object
"""


def main(arguments: Sequence[str]) -> int:
    """Answer; 0, or 2 after one line on standard error."""
    try:
        if any(word in _HELP for word in arguments):
            print(_HEAD + settings_text([a for a in arguments if a not in _HELP], ROOT))
            return 0
        row, as_json = _answer(arguments)
    except USER_ERRORS as error:
        message = reworded(error, arguments, ROOT)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2
    if as_json:
        print(to_json(row))
    else:
        print_answer(row, Console())
    return 0


def size(*overrides: str) -> Mapping[str, Any]:
    """The answer as one row, from Python.

    Args:
        overrides: settings as on the command line, e.g. "model=llama3.1_8b".

    Raises:
        ServesimError: one line that names the setting and the nearest valid choice.
    """
    try:
        return _answer(overrides)[0]
    except USER_ERRORS as error:
        message = reworded(error, overrides, ROOT)
        if message is None:
            raise
        raise message from None


def _answer(arguments: Sequence[str]) -> tuple[dict[str, Any], bool]:
    for word in arguments:
        if word.startswith("-"):
            raise ServesimError(f"servesim size takes settings and --help, not '{word}'")
    cfg = composed(arguments, root=ROOT)
    OmegaConf.resolve(cfg)
    sizing = sizing_of(cfg)
    return row_of(sizing, requests_of(sizing)), cfg.output.format == "json"
