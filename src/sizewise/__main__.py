"""`python -m sizewise`: the command line."""

from .cli import main

main()
