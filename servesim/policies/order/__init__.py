"""Queue orders: which waiting request is next. One file and one YAML each."""
