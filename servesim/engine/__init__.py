"""The simulation loop; the only place that knows SimPy."""
