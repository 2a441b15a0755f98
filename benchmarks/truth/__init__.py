"""Calls of torch's public functions that raise, each for a reason of its own."""
