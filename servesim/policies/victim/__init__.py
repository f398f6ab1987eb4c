"""Who loses its blocks when memory runs out: a small choice, one file each."""
