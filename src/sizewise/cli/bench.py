"""`sizewise bench`: calls whose sizes change, through Sizewise, eager mode and torch.compile.

The JSON answer:

    {"target": str, "torch": str, "threads": int, "seed": int, "calls": int, "cold": bool,
     "dims": {name: {"min": int, "max": int}},
     "peers": {"sizewise" | "eager" | "compile": {
        "first_result_s": float,               warm-up or compilation, and the first answer
        "compilations_in_service": int,        after the first answer
        "worst_ms": float, "median_ms": float, "p95_ms": float,
        "largest_relative_difference": float,  from eager, relative to the RMS of eager's result
        "beyond_rounding": int,                calls whose difference is more than rounding
        "median_vs_compile": float | null,     median over calls of time / torch.compile's for the same
                                               call; null without that peer
        "worst_vs_compile": float | null,      worst call / torch.compile's worst call
        "failed": str}}}                       '' or why the peer was left out, then the numbers are null
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from .output import ANSWER_IS_NO, AsJson, show, show_json, table, users_code
from .settings import Assignments, Backend, config_from
from .targets import TargetArgument, load_target

PEERS = ("eager", "compile")


def bench(
    target: TargetArgument,
    calls: Annotated[int, typer.Option("--calls", min=1, help="Calls after the first one.")] = 60,
    seed: Annotated[int, typer.Option("--seed", help="Decides the sizes and the values.")] = 0,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", min=1, help="torch's threads. With more than one, peers that take turns slow each other."
        ),
    ] = 1,
    peers: Annotated[
        str, typer.Option("--peers", help="What to compare with: eager, compile, both with a comma.")
    ] = "eager,compile",
    warm_cache: Annotated[
        bool, typer.Option("--warm-cache", help="Let both use Inductor's cache as it is on this machine.")
    ] = False,
    backend: Backend = None,
    assignments: Assignments = None,
    json: AsJson = False,
) -> None:
    """Time calls of changing sizes, beside eager mode and torch.compile(dynamic=True).

    Every peer gets the same calls in turn. Each compiler starts with a cache of
    its own that holds nothing of the model; what the first compilation in any
    process costs is paid before.

    Exit code 1: a result differs from eager's by more than rounding.

    A minute or two: both compilers start cold.

    Example: sizewise bench app.py:make --calls 20
    """
    chosen = _chosen(peers)
    # torch comes with it; `sizewise --help` does without.
    import torch

    from .race import measure

    config = config_from(backend, assignments)
    torch.set_num_threads(threads)
    loaded = load_target(target)
    with users_code():
        measured = measure(loaded, config, chosen, calls, seed, cold=not warm_cache)
    answer = {
        "target": target,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "calls": calls,
        "cold": not warm_cache,
        "dims": {name: {"min": dim.min, "max": dim.max} for name, dim in measured.dims.items()},
        "peers": measured.as_data(),
    }
    if json:
        show_json(answer)
    else:
        _show(answer)
    if answer["peers"]["sizewise"]["beyond_rounding"]:
        raise typer.Exit(ANSWER_IS_NO)


def _chosen(peers: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in peers.split(",") if name.strip()))
    for name in names:
        if name not in PEERS:
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(PEERS)}; Sizewise itself always takes part",
                param_hint="--peers",
            )
    return names


def _show(answer: dict[str, Any]) -> None:
    dims = ", ".join(f"{name} {dim['min']} to {dim['max']}" for name, dim in answer["dims"].items())
    cache = "cold caches" if answer["cold"] else "the cache as it was"
    show(
        f"{answer['target']}: {answer['calls']} calls, {dims or 'no size changes'}; "
        f"torch {answer['torch']}, {_counted(answer['threads'], 'thread')}, {cache}, seed {answer['seed']}"
    )
    columns = (
        "",
        "first result",
        "compilations\nin service",
        "worst call",
        "95 %",
        "median",
        "time against\ntorch.compile",
        "largest\ndifference",
    )
    show(table(columns, [_row(name, peer) for name, peer in answer["peers"].items()], numbers=True))
    for name, peer in answer["peers"].items():
        if peer["failed"]:
            show(f"{_LABELS[name]} failed: {peer['failed']}")
        elif peer["beyond_rounding"]:
            show(f"{_LABELS[name]}: {peer['beyond_rounding']} results differ from eager's beyond rounding")


_LABELS = {"sizewise": "Sizewise", "eager": "eager", "compile": "torch.compile"}


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _row(name: str, peer: dict[str, Any]) -> list[str | Text]:
    label = Text(_LABELS[name], style="bold" if name == "sizewise" else "")
    if peer["failed"]:
        return [label, "failed", *[""] * 6]
    ratio = peer["median_vs_compile"]
    return [
        label,
        f"{peer['first_result_s']:.2f} s",
        str(peer["compilations_in_service"]),
        f"{peer['worst_ms']:.1f} ms",
        f"{peer['p95_ms']:.2f} ms",
        f"{peer['median_ms']:.2f} ms",
        f"{ratio:.2f} x" if ratio is not None else "-",
        f"{peer['largest_relative_difference']:.1e}",
    ]
