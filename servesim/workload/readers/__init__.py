"""Readers of traces, one file per source."""
