"""One contestant in a fresh process: orders as JSON lines on stdin, events as JSON lines on stdout.

    python -m sizewise.demo.worker

The first order is the job, the others ask for single timings. The worker ends when stdin does, so that
none outlives the command that started it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, TextIO

from ..errors import SizewiseError
from .watch import Watch


def main() -> None:
    # What libraries print must not end up between the events.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    job = orders.get()
    events = Events(out)
    try:
        _run(job, events, orders)
    except SizewiseError as error:
        fields = {name: str(value) for name, value in error.fields.items()}
        events.send("error", code=error.code, fields=fields, text=str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        events.send("error", code="", fields={}, text=text)
    out.flush()
    # Inductor's pool of compiler processes may take seconds to end by itself.
    os._exit(0)


def _run(job: dict[str, Any], events: Events, orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    # What each imports is a part of what it measures.
    if job["contestant"] == "machine":
        from .machine import prepare

        prepare(job["snapshot"])
        events.send("done")
    elif job.get("again"):
        watch = Watch()
        from .restarted import serve_again

        serve_again(job, events, watch)
    else:
        from .service import serve

        serve(job, events, orders)


class Events:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def send(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps({"event": event, **fields}) + "\n")


def _read_orders(orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    # Nobody is waiting any more. The worker leads a group of its own: compilers it started end, too.
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
