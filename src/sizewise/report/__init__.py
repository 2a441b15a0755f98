"""Reports on a compiled module."""

from .report import Pieces, Report, make_report

__all__ = ["Pieces", "Report", "make_report"]
