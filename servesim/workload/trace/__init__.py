"""What all readers of traces share: files, columns, clocks, and the way from rows to requests."""
