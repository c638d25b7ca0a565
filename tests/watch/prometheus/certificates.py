"""A certificate authority of our own, with a certificate of a server and one of a client."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]


def make_certificates(folder: Path) -> dict[str, Path]:
    """Return the files ca.pem, server.pem, client.pem and their keys, by name without ending."""
    made: dict[str, Path] = {}
    for name, more in (
        ("ca", []),
        ("server", ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]),
        ("client", ["-addext", "extendedKeyUsage=clientAuth", "-addext", "basicConstraints=CA:FALSE"]),
    ):
        made[name], made[f"{name}-key"] = folder / f"{name}.pem", folder / f"{name}.key"
        signed = [] if name == "ca" else ["-CA", str(made["ca"]), "-CAkey", str(made["ca-key"])]
        command = ["openssl", "req", "-x509", *_KEY, "-subj", f"/CN={name}", *signed, *more]
        subprocess.run(  # noqa: S603 - openssl with words of this file
            [*command, "-keyout", str(made[f"{name}-key"]), "-out", str(made[name])],
            check=True,
            capture_output=True,
            timeout=300,
        )
    return made


def signed(ca: Path) -> ssl.SSLContext:
    """Return the TLS of the server that the authority of this file signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca.with_name("server.pem"), ca.with_name("server.key"))
    return context
