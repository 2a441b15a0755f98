"""Other libraries' own extension points. Each file imports its library late."""
