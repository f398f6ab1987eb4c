"""Kernel tables of any model in, tables of one model's steps out (servesim.cost.kernels)."""
