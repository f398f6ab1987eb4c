"""What no kernel table has, tuned on measured runs, per GPU and engine: host time, front end."""
