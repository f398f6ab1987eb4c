"""Fitting the laws of servesim.workload to a trace."""
