"""How wrong is it: every measured case beside its prediction."""
