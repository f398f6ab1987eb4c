"""A real serving run beside its simulation."""
