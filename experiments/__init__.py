"""One folder per question: a sweep, its figures, its finding."""
