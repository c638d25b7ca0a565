"""The doctor's bundle names nobody: no secret, host, address, user or name of a server is in it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from sparktop.config.schema import check
from sparktop.doctor.bundle import bundle, bundle_privacy, last_lines
from sparktop.doctor.check import Check, Status, to_json
from sparktop.report.privacy import Privacy

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CONFIG = """
interval_s = 2
[[nodes]]
name = "mimir-rack"
via = "ssh"
ssh = "freya@mimir.acme-labs.com"
[[nodes]]
name = "odin"
via = "agent"
url = "http://odin.fjord.lan:9750"
token_file = "odin.token"
[[backends]]
name = "mimir-llm"
url = "http://mimir.acme-labs.com:8000"
engine = "vllm"
api_key_env = "MIMIR"
nodes = ["mimir-rack"]
[[routers]]
name = "gate"
url = "http://192.0.2.17:4000"
deployments = { "gate-7" = "mimir-llm" }
[[prometheus]]
url = "http://[2001:db8::beef]:9090"
bearer_file = "~nobody-here/token"
headers = { X-Scope-OrgID = "team-loki" }
[[sweeps]]
name = "ours"
concurrency = [1, 4]
extra_body = { user = "brynhild" }
headers = { X-Tenant = "asgard" }
[events]
webhook = "https://hooks.example.org/T0/WEBHOOKPATH"
hook = ["/home/freya/bin/notify", "--key", "hunter22"]
"""
ENV = {"MIMIR": "mimirkey77", "VLLM_API_KEY": "unnamed-key-1", "LANG": "C.UTF-8"}
LOG = """\
2026-11-29 12:00:00,000 ERROR sparktop.net.client: connect to thor-9 failed, as 7a:9 does
  File "/home/freya/.venv/lib/site-packages/sparktop/net/client.py", line 12, in get
ConnectionError: http://admin:swordfish@thor-9:8443/v1?key=abc: HEIMDALL.fjord.lan is 192.0.2.17:4000
mac 48:b0:2d:aa:bb:cc token=plainsecret Bearer xyz.abcdef unnamed-key-1 loki@10.1.2.3 sif:8000
fe80::77%eth0 at:fe80::78
key q1w2e3r4t5y6u7i8o9p0q1w2e3r4t5y6u7i8 of Freya at mimir (mimir.acme-labs.com), 127.0.0.1:8000 and vllm
"""
PLANTED = (
    *("freya", "mimir", "odin", "acme", "fjord", "thor", "heimdall", "loki", "sif", "brynhild", "asgard"),
    *("192.0.2", "2001:db8", "beef", "10.1.2.3", "fe80::7", "48:b0:2d"),
    *("mimirkey77", "unnamed-key-1", "odintoken", "hunter22", "WEBHOOKPATH", "swordfish", "plainsecret"),
    *("xyz.abcdef", "q1w2e3r4", "gate-7", "this-host", "admin"),
)


def made_bundle(folder: Path) -> dict[str, Any]:
    (folder / "odin.token").write_text("odintoken\n", encoding="utf-8")
    (folder / "log").write_text(LOG, encoding="utf-8")
    config = check(folder / "sparktop.toml", CONFIG)
    checks = [
        Check("name mimir.acme-labs.com", Status.FAIL, "does not resolve", "ping mimir.acme-labs.com"),
        Check("mimir-llm port", Status.OK, "192.0.2.17:8000 takes connections"),
        Check("memory", Status.OK, "/home/freya/x is 128 GiB, vLLM 0.11.0; odin and odintoken"),
    ]
    privacy = bundle_privacy(
        config.watch(ENV), config, ENV, own_names=["this-host", "localhost"], users=["freya", ""]
    )
    return bundle(checks, lambda some: to_json(some, NOW), config, last_lines(folder / "log"), privacy)


def test_nothing_planted_survives(tmp_path: Path) -> None:
    """No secret, host name, address, user or server's name is in the bundle, wherever it stood."""
    text = json.dumps(made_bundle(tmp_path)).replace(str(tmp_path), "").lower()
    assert [word for word in PLANTED if word.lower() in text] == []


def test_what_helps_survives_with_the_same_stand_in_everywhere(tmp_path: Path) -> None:
    """Settings, versions, code lines and this machine's own address stay; equal hosts are called alike."""
    made = made_bundle(tmp_path)
    first, second, third = made["doctor"]["checks"]
    host = first["name"].removeprefix("name ")
    settings = made["configuration"]
    backend, (router,) = settings["backends"][0], settings["routers"]
    assert first["advice"] == f"ping {host}"
    assert settings["nodes"][0]["ssh"].partition("@")[2] == host
    assert (backend["url"], backend["engine"]) == (f"http://{host}:8000", "vllm")
    assert second["name"] == f"{backend['name']} port"
    assert second["message"].partition(":")[0] == router["url"].removeprefix("http://").partition(":")[0]
    assert third["message"].endswith(f" is 128 GiB, vLLM 0.11.0; {settings['nodes'][1]['name']} and (secret)")
    assert settings["sweeps"][0]["concurrency"] == [1, 4]
    assert made["log"][1].startswith(
        '  File "/home/user-1/.venv/lib/site-packages/sparktop/net/client.py", line'
    )
    assert made["log"][-1].endswith("127.0.0.1:8000 and vllm")
    assert made["versions"]["packages"]["msgspec"]


@given(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)),
    st.from_regex(r"\A[a-z][a-z0-9]{3,9}-[a-z0-9]{2,9}\Z"),
)
def test_no_address_and_no_host_of_a_url_survives(address: IPv4Address | IPv6Address, host: str) -> None:
    """Any address and any host is replaced, however a text has them, and by the same stand-in again."""
    assume(not address.is_loopback and not address.is_unspecified)
    shown = f"[{address}]" if address.version == 6 else str(address)
    privacy = Privacy(anonymous=True, numbered=True)
    text = privacy.text(f"http://{host}:8000 {host} at {address}, {shown}:80 ({address}). ssh me@{host}")
    assert str(address) not in text
    assert host not in text
    assert text.count("address-1") == 3
    assert text.count("host-1") == 3
