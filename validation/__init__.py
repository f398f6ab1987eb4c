"""Measured traces in, fitted costs and errors out."""
