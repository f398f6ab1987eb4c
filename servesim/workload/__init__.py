"""Where requests come from: synthetic processes and readers of public traces."""
