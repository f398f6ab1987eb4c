"""Held-out errors of a fit to LLMServingSim's older profiles: attention, and whole steps.

A measured step is put together from the tables: dense layers and head at its own number of tokens
and rows, and one row of attention. Experts are left out of both sides.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servesim.deployment import Deployment
from validation.fit import old_attention, steps
from validation.fit.check import Part
from validation.fit.curves import every_fifth
from validation.fit.old_attention import Chunks, Decodes
from validation.fit.old_dense import Dense
from validation.fit.rows import Mask
from validation.sources.llmservingsim_v0 import Profile
from validation.sources.tables import Array


@dataclass(frozen=True)
class Fitted:
    """What is to be checked against what."""

    profile: Profile
    target: Deployment
    dense: Dense
    decodes: Decodes
    chunks: Chunks

    def step_error(self, tokens: Array, rows: Array, us: Array, fitted_us: Array) -> Array:
        """Fitted ÷ measured − 1 of steps with so much attention per layer, `us` and `fitted_us`."""
        layers, dense = self.target.model.num_layers, self.dense
        at, head = (np.searchsorted(self.profile.tokens, x) for x in (tokens, rows))
        measured = layers * (dense.layer_us[at] + us) + dense.once_us[at] + dense.head_us[head]
        fitted = dense.at("dense", "tokens", tokens) + dense.at("head", "rows", rows)
        return np.asarray((fitted + layers * fitted_us) / measured - 1)


def errors(fit: Fitted, held_decodes: Mask, held_chunks: Mask) -> tuple[list[Part], dict[str, Any]]:
    """By part, whole steps last; and residuals of whole steps. Masks are of the attention table."""
    rows = fit.profile.attention
    if rows is None:
        return _errors_without_table(fit)
    n, kv, us = (x[held_decodes] for x in (rows.seqs, rows.kv_tokens, rows.decode_us))
    fitted = old_attention.as_measured_us(fit.decodes, fit.target, n, kv)
    at = [f"decodes={a:g} kv_tokens={b:g}" for a, b in zip(n, kv, strict=True)]
    decode = fit.step_error(n, n, us, fitted)
    parts = [_part("decode_attention", fitted / us - 1, at), _part("decode_step", decode, at)]
    chunk, past, us = (x[held_chunks] for x in (rows.chunk, rows.past, rows.chunk_us))
    # the table's rows are the past alone; a chunk's own part is measured apart, where it is
    launch_us, nothing = fit.decodes.launch_us, np.zeros_like(chunk)
    own = _own_us(fit, chunk)
    us, fitted = own + us - launch_us, fit.chunks.at(chunk, past)
    where = [f"chunk={a:g} past={b:g}" for a, b in zip(chunk, past, strict=True)]
    prefill = fit.step_error(chunk, nothing + 1, us, fitted)
    parts += [_part("prefill_attention", fitted / us - 1, where)]
    parts += [_part("prefill_step", prefill, where)]
    parts += [_part("step", np.concatenate([decode, prefill]), at + where)]
    return parts, _residuals(decode, prefill)


def _errors_without_table(fit: Fitted) -> tuple[list[Part], dict[str, Any]]:
    """Where only whole prompts were measured; decode steps without their attention."""
    held = every_fifth(len(fit.profile.tokens))
    tokens = fit.profile.tokens[held]
    nothing, own = np.zeros_like(tokens), _own_us(fit, tokens)
    prefill = fit.step_error(tokens, nothing + 1, own, fit.chunks.at(tokens, nothing))
    few = tokens <= fit.dense.tables["head"]["rows"][-1]
    none = nothing[few]
    decode = fit.step_error(tokens[few], tokens[few], none, none)
    where = [f"chunk={t:g}" for t in tokens]
    parts = [
        _part("decode_step_without_attention", decode, where),
        _part("prefill_step", prefill, where),
        _part("step", prefill, where),
    ]
    return parts, _residuals(decode, prefill)


def _own_us(fit: Fitted, chunk: Array) -> Array:
    if "attn" not in fit.profile.layers_us:
        return fit.chunks.at(chunk, np.zeros_like(chunk))
    return np.asarray(np.interp(chunk, fit.profile.tokens, fit.profile.layers_us["attn"]))


def _residuals(decode: Array, prefill: Array) -> dict[str, Any]:
    return steps.residual_tree(-np.log1p(decode), -np.log1p(prefill))


def _part(name: str, error: Array, where: list[str]) -> Part:
    return Part(name, error, where[int(np.abs(error).argmax())])
