"""Which queue order serves best, and from which load on?"""
