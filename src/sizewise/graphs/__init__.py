"""Captures: a program bound to one exact size, replayed without what a call of the program decides again each time."""
