"""Who is turned away at the door (HTTP 503): a small choice, one file each."""
