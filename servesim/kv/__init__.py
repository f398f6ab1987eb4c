"""KV-cache memory: capacity, blocks, prefix cache."""
