"""The error reference: errors of the installed stack, found in its sources, searched, explained and shown.

No file here imports torch, nor executes a line of what it reads.
"""
