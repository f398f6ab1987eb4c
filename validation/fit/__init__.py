"""Public operator profiles in, cost YAMLs with provenance and held-out error out."""
