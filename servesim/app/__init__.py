"""The application: configuration in, objects built, one result row and files out."""
