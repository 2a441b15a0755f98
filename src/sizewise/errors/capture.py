"""Errors of captures: SW6xx."""

from __future__ import annotations

from .base import CaptureError


class CapturingDisabled(CaptureError, RuntimeError):
    code = "SW601"
    message = (
        "CUDA graph capturing detected at an inappropriate time. This operation is currently disabled. "
        "Seen: a capture asked for by thread {thread!r} while the gate is closed."
    )
    remedy = (
        "capture during warm-up, or run this part eagerly. Only the code that owns the life cycle may open "
        "the gate: `with sizewise.monitor.cudagraph_capturing(True): ...`."
    )


# SW602 is kept for the missing attribute of a capture wrapper.


class CapturingFlagNotBool(CaptureError, TypeError):
    code = "SW603"
    message = "The capture gate is opened with True and closed with False. Seen: {value!r} ({kind})."
    remedy = "give a bool."


class CaptureRefused(CaptureError, RuntimeError):
    code = "SW621"
    message = "{owner} cannot be captured at {sizes}, which cudagraph_capture_sizes lists: {why}."
    remedy = (
        "leave the size out of the list; with allow_partial=True calls of this size run the program, and the report "
        "says so."
    )
