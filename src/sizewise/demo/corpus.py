"""The sentences of the demo, and the questions asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

QUERIES = (
    "How do I keep a loaf of bread from going dry?",
    "My train did not arrive on time.",
    "The program fails, but only now and then.",
)


@dataclass(frozen=True)
class Sentence:
    text: str
    topic: str

    @property
    def words(self) -> int:
        return len(self.text.split())


def load_sentences() -> list[Sentence]:
    """The sentences in the order of the file; a line ``# topic`` names the topic of those below it."""
    found: list[Sentence] = []
    topic = ""
    for line in files(__package__).joinpath("sentences.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            topic = line.lstrip("# ")
        elif line.strip():
            found.append(Sentence(line.strip(), topic))
    return found
