"""Measured against simulated: one comparison for every command that needs one."""
