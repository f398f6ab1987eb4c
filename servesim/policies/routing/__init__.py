"""To which of several engines a request goes: a small choice, one file each."""
