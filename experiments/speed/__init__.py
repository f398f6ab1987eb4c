"""How fast is the simulator, and what does skipping bring?"""
