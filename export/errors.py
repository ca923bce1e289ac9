"""The one exception by which the exporter refuses a model."""

from __future__ import annotations


class ExportError(Exception):
    """The model cannot be exported: the message names the file or field, expected and found."""
