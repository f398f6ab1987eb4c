"""Why a request is refused at the door, in the same words by every profile."""

from servesim.records import Request


def beyond_context(request: Request, max_model_len: int) -> str | None:
    """That prompt and cap exceed the longest context, or None."""
    length = request.prompt_tokens + request.max_tokens
    if length <= max_model_len:
        return None
    return f"prompt + max_tokens = {length} > max_model_len {max_model_len}"


def beyond_cache(request: Request, slots: int) -> str | None:
    """That they exceed so many token slots, or None; the last sampled token gets no KV."""
    most = request.prompt_tokens + request.max_tokens - 1
    if most <= slots:
        return None
    return f"prompt + max_tokens - 1 = {most} > {slots} tokens of KV cache"
