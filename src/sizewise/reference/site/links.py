"""Addresses within the site: relative ones in files, which open from a disk or below any path, else from the root."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Links:
    """The addresses as one page needs them. ``root`` leads from the page to the top of the site."""

    root: str
    page_end: str
    """What follows a page's name: a file in a static site."""
    data_end: str

    @property
    def home(self) -> str:
        return f"{self.root}{self.page_end.lstrip('/')}"

    @property
    def report(self) -> str:
        return f"{self.root}report{self.page_end}"

    @property
    def search(self) -> str:
        return f"{self.root}search.js"

    def asset(self, name: str) -> str:
        return f"{self.root}assets/{name}"

    def page(self, error: str) -> str:
        return f"{self.root}errors/{error}{self.page_end}"

    def data(self, error: str) -> str:
        return f"{self.root}api/errors/{error}{self.data_end}"


def in_files(depth: int) -> Links:
    """For a page ``depth`` folders below the top of a static site."""
    return Links("../" * depth, "/index.html", ".json")


SERVED = Links("/", "", "")
