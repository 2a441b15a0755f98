"""The static scan: errors of an installed package, read off its sources with `ast`. Nothing of it is imported."""
