"""Readers of public measurements; each checks schema and units by file and line."""
