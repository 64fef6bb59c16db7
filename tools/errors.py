"""Errors that the command line prints as one line, without a traceback."""

from workshop.record.errors import InputError, LogError, failed_file, no_package

__all__ = ["InputError", "LogError", "NoRunsError", "UnavailableError", "failed_file", "no_package"]


class NoRunsError(Exception):
    """There is nothing to read yet: no run of the exercise. Exit code 3: this is no mistake."""


class UnavailableError(Exception):
    """There is no figure; the text (OOM, not measured, no GPU log, ...) is what the cell shows."""
