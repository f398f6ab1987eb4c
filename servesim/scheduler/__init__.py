"""Engine profiles: queues and a block pool in, one step's plan out. No clock, no SimPy."""
