"""Definitions of what is reported, over records only."""
