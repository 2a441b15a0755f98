"""The demo as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

from typing import Any

from . import wording
from .plot import make_plot
from .results import DemoResult
from .runner import REPEATS

WIDE, NARROW = (1000, 420), (380, 340)
"""Drawing sizes for a screen and for a phone; scaling one down would make its text too small to read."""


def render(result: DemoResult) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    plots: dict[str, Any] = {
        "wide": make_plot(result, *WIDE),
        "narrow": make_plot(result, *NARROW),
    }
    return environment.get_template("page.html.j2").render(result=result, plots=plots, words=wording, repeats=REPEATS)
