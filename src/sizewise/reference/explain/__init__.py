"""From a pasted error to its record: read the text, ask the index, weigh what it answers, say so or say nothing."""

from .answer import Answer, Match, explain
from .bounded import read_bounded
from .names import named, told_of_name
from .origins import WORDS

__all__ = ["WORDS", "Answer", "Match", "explain", "named", "read_bounded", "told_of_name"]
