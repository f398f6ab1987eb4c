"""The scheduler of TensorRT-LLM."""
