"""The scheduler of transformers' continuous batching."""
