"""What it is served on: GPUs and their links."""
