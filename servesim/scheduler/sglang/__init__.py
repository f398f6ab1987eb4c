"""The scheduler of SGLang."""
