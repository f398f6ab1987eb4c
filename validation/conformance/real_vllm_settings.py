"""Settings for vLLM's scheduler under the names that it reads, without the engine around it.

The engine's own configuration classes need a model to be loaded, so they are written down by hand.
Source: v1/core/sched/scheduler.py and config/{vllm,speculative}.py of vLLM 0.11.0, 0.15.0, 0.20.0,
0.32.0 and 0.33.0.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


class _Settings(SimpleNamespace):
    """Settings by name; what is not given is None, as an option that is not used."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def engine_settings(config: Mapping[str, Any]) -> Any:
    """What the five releases read, for a trace's settings: one full-attention group, one GPU."""
    steps_in_flight = 2 if config["asyn"] else 1
    return _Settings(
        scheduler_config=_scheduler_settings(config),
        cache_config=_Settings(
            num_gpu_blocks=config["nblocks"],
            block_size=config["bs"],
            enable_prefix_caching=config["caching"],
            mamba_cache_mode="none",
        ),
        model_config=_Settings(max_model_len=config["max_len"], runner_type="generate"),
        parallel_config=_Settings(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            data_parallel_index=0,
            data_parallel_rank=0,
        ),
        observability_config=_Settings(),
        speculative_config=_drafter(config) if config["K"] else None,
        num_speculative_tokens=config["K"],
        num_lookahead_tokens=config["la"],
        num_prefill_lookahead_tokens=1 if config.get("eagle_drop") else 0,
        num_hash_lookahead_tokens=0,
        max_in_flight_tokens=config["max_tok"] * steps_in_flight,
        max_concurrent_batches=steps_in_flight,
        ec_manager_config=_Settings(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=_Settings(enabled=False),
    )


def _scheduler_settings(config: Mapping[str, Any]) -> Any:
    return _Settings(
        max_num_batched_tokens=config["max_tok"],
        max_num_seqs=config["max_seqs"],
        max_num_active_seqs=config["max_seqs"],
        max_model_len=config["max_len"],
        policy=config["policy"],
        long_prefill_token_threshold=config["thr"],
        enable_chunked_prefill=config["chunked"],
        chunked_prefill_enabled=config["chunked"],
        scheduler_reserve_full_isl=config["full"],
        watermark=config["wm"],
        async_scheduling=config["asyn"],
        prefill_schedule_interval=1,
        max_num_encoder_input_tokens=0,
        encoder_cache_size=0,
        stream_interval=1,
    )


def _drafter(config: Mapping[str, Any]) -> Any:
    """An EAGLE-type drafter drops the last cached block, which makes it compute its state anew.

    Since 0.33 it does so only without the hashes that look one token ahead, here off.
    """
    drops = bool(config.get("eagle_drop"))
    return _Settings(
        num_speculative_tokens=config["K"],
        use_eagle=lambda: drops,
        use_eagle_block_drop=lambda: drops,
        needs_eagle_block_drop=lambda: drops,
        uses_draft_model=lambda: config["la"] > 0 and not drops,
        uses_dynamic_speculative_decoding=lambda: False,
        disable_eagle_block_drop=False,
        max_num_new_slots_for_drafting=0,
    )
