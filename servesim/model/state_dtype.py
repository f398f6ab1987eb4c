"""The number format of recurrent states, which an engine may choose apart from the model."""

from dataclasses import replace

from servesim.model.dtypes import DTYPE_BYTES
from servesim.model.recurrent import Recurrent
from servesim.model.spec import ModelSpec


def with_state_dtype(model: ModelSpec, dtype: str) -> ModelSpec:
    """The model with its recurrent states in `dtype` (vLLM `--mamba-ssm-cache-dtype`).

    Windows of convolutions stay in 16 bits. A model without such layers is returned as it is.
    """
    size = int(DTYPE_BYTES[dtype])
    layers = tuple(
        replace(layer, mixer=replace(layer.mixer, state_bytes_per_element=size))
        if isinstance(layer.mixer, Recurrent)
        else layer
        for layer in model.layers
    )
    return replace(model, layers=layers)
