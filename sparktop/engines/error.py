"""The exception raised for an answer that cannot be read as a metrics page."""

from __future__ import annotations

from sparktop.errors import SparktopError
from sparktop.model.failure import FailureKind


class PageError(SparktopError):
    """An answer that is not a readable metrics page; its message is one clean line.

    Attributes:
        kind: category of the fault, the `kind` of the `Failure` that reports it.
        message: what the answer turned out to be.
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
