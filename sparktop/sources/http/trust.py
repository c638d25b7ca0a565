"""What the certificate of one server is checked against: a file named with `tls_ca`, else the system's."""

from __future__ import annotations

import ssl
from pathlib import Path

from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.http.failure import AnswerError


class Trust:
    """The certificates of `tls_ca` as a TLS context, which is loaded when it is needed."""

    def __init__(self, tls_ca: str | None, where: str) -> None:
        """Use the file `tls_ca`, or the system's certificates if it is None; `where` names the server."""
        self._file = tls_ca
        self._where = where
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return a TLS context that trusts the certificates in the file; None for the system's certificates.

        Raises:
            AnswerError: the file cannot be read or holds no certificate.
        """
        if self._file is None:
            return None
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=str(Path(self._file).expanduser()))
            except (OSError, ssl.SSLError, RuntimeError) as error:  # RuntimeError: an unknown user's home
                system = getattr(error, "strerror", None)
                why = "holds no certificate" if isinstance(error, ssl.SSLError) else system
                shown = clean(self._file, 80)
                message = f"tls_ca of {self._where}: {shown} cannot be used: {why or 'unreadable'}"
                raise AnswerError(FailureKind.TLS, message) from None
        return self._context

    def forget(self) -> None:
        """Drop the TLS context, so that the next request reads the file again."""
        self._context = None
