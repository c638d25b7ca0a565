"""Checks remote nodes: whether the agent or ssh responds, and what the node reports."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from sparktop.doctor.check import Check, Status
from sparktop.doctor.machine import check_missing_gpu
from sparktop.doctor.network import Network, place_of
from sparktop.doctor.servers import check_port
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.targets import NodeTarget
from sparktop.sources.source import Reading, Source

_AGENT_S = 6.0
_SSH_S = 25.0
"""Seconds to wait: ssh may take 10 s to connect, and Python on a busy machine some more."""
_ADVICE = {
    FailureKind.REFUSED: "start `sparktop agent --listen HOST:9750 --token-file FILE` there",
    FailureKind.TIMEOUT: "ping the host; look for a firewall between here and there",
    FailureKind.UNAUTHORIZED: "name the agent's token with token_env or token_file",
    FailureKind.TLS: "name the authority that signed its certificate with tls_ca",
    FailureKind.MALFORMED: "correct the port: something else listens there",
}
"""What to do about an agent that fails; a failure of ssh says it itself."""
_RETRYING = re.compile(r" · reconnecting(?: in \d+ s)?$")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def way_in(target: NodeTarget) -> Source:
    """Return the source through which the monitor would read the node `target`: an agent or ssh."""
    if target.via == "ssh":
        from sparktop.sources.ssh.source import SshSource  # late: most examinations have no node elsewhere

        return SshSource(target)
    from sparktop.sources.agent import AgentSource  # as above

    return AgentSource(target)


async def check_node(
    target: NodeTarget, network: Network, *, source: Callable[[NodeTarget], Source] = way_in
) -> list[Check]:
    """Check the access to a remote node by reading one sample; return [] if the node is this machine.

    `source` creates the source of the samples.
    """
    if target.via == "local":
        return []
    checks: list[Check] = []
    if target.via == "agent" and target.url:
        refused = _ADVICE[FailureKind.REFUSED]
        reach = await check_port(f"{target.name} agent", target.url, network, refused=refused)
        checks.append(reach)
        if reach.status is Status.FAIL:
            return checks
        checks += _check_secrecy(target)
    reading, identity = await _read(source(target), _AGENT_S if target.via == "agent" else _SSH_S)
    return [*checks, *_node_checks(target, reading, identity)]


def _check_secrecy(target: NodeTarget) -> list[Check]:
    """Return a warning if the agent's token is sent without encryption to another machine, else no check."""
    place = place_of(target.url or "")
    secret = target.token or target.token_file
    if not secret or place is None or urlsplit(target.url or "").scheme == "https" or place.host in _LOOPBACK:
        return []
    seen = f"the token goes to {place.shown} unencrypted: anyone on the way can read it"
    advice = "give the agent --tls-cert and --tls-key, and write https:// here"
    return [Check(f"{target.name} token", Status.WARN, seen, advice)]


async def _read(source: Source, within_s: float) -> tuple[Reading, NodeIdentity | None]:
    """Poll a source once, for at most `within_s` seconds, and close it.

    Return the reading, and the node's identity or None if that is unknown.
    """
    try:
        reading = await source.poll(within_s)
        return reading, getattr(source, "identity", None)
    finally:
        await source.close()


def _node_checks(target: NodeTarget, reading: Reading, identity: NodeIdentity | None) -> list[Check]:
    """Return the checks of a node's sample, or of the `Failure` if the node could not be read."""
    name = f"{target.name} node"
    if isinstance(reading, Failure):
        # The doctor does not retry, so the source's announcement of a retry is cut off.
        message = _RETRYING.sub("", reading.message)
        advice = _ADVICE.get(reading.kind, "") if target.via == "agent" else ""
        return [Check(name, Status.FAIL, message, advice)]
    known = identity or NodeIdentity()
    parts = [known.product, known.os, f"driver {known.driver}" if known.driver else None]
    seen = ", ".join(part for part in parts if part) or "answers"
    sent = f"; {known.reader_label} was sent there" if known.reader_label else ""
    checks = [Check(name, Status.OK, f"read through {target.via}: {seen}{sent}")]
    if isinstance(reading, NodeSample) and reading.gpu_note is not None:
        note = reading.gpu_note.replace(" on this machine", "")  # a note of the machine itself
        checks.append(check_missing_gpu(f"{target.name} GPU", note, reading, known))
    return checks
