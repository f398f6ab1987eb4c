"""Step-by-step comparison of servesim's schedulers with traces of real ones."""
