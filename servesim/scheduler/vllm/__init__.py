"""The schedulers of vLLM: V1 by release, V0."""
