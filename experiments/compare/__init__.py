"""Choices side by side under rising load: a sweep, its ranking and its figure."""

from experiments.compare.comparison import Column, Comparison, Panel, main

__all__ = ["Column", "Comparison", "Panel", "main"]
