"""The exception for a response that cannot be read as a metrics page."""

from __future__ import annotations

from sparktop.errors import SparktopError
from sparktop.model.failure import FailureKind


class PageError(SparktopError):
    """A response that cannot be read as a metrics page; the error's text is one clean line.

    Attributes:
        kind: category of the fault, which becomes the `kind` of the `Failure` that reports it.
        message: what is wrong with the response, such as "an HTML page, not metrics".
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
