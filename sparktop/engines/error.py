"""Why an answer is no page that can be read."""

from __future__ import annotations

from sparktop.errors import SparktopError
from sparktop.model.failure import FailureKind


class PageError(SparktopError):
    """An answer that is no readable metrics page; its message is one clean line.

    Attributes:
        kind: what went wrong, as a `Failure` says it.
        message: what the answer is instead.
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
