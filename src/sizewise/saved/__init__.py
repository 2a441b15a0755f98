"""Programs on disk: written down as plain data and generated source, read back without a compiler."""
