"""The demo's own error."""

from __future__ import annotations

from ..errors.base import CommandError


class DemoFailed(CommandError, RuntimeError):
    code = "SW790"
    message = "the demo's process for {contestant} ended without a result ({status}). Its last words: {tail}"
    remedy = (
        "run it again; an exit by signal 9 usually means that memory ran out (about 2 GB are needed). "
        "Otherwise report the last words."
    )
