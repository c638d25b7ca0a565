"""What a report never shows, and what it shows on request."""

from __future__ import annotations

import pytest

from sparktop.sweep.compare.series import load_reference
from sparktop.sweep.formats.written import SweepPrivacy, sweep_report
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from tests.sweep.formats.full_results import full_sweep
from tests.sweep.made_results import made_series

FORMATS = ("md", "html", "csv", "json", "svg")
CANARY = "canary7"
ALL = [
    (form, mode)
    for form in FORMATS
    for mode in (SweepPrivacy(), SweepPrivacy(addresses=True), SweepPrivacy(anonymous=True))
]


def secret_sweep() -> SweepResult:
    """Return a sweep whose messages and addresses hold secrets in every usual form."""
    messages = (
        f"Incorrect API key provided: sk-{CANARY}abcdef",
        f"Authorization: Bearer {CANARY}",
        f"x-litellm-api-key: {CANARY}",
        f'{{"api_key": "{CANARY}"}}',
        f"GET http://user:{CANARY}@10.1.2.3:4000/v1?token={CANARY}#{CANARY} failed",
        f"password={CANARY}",
        f"hf_{CANARY}abcdef is no token of this organisation",
    )
    result = full_sweep(url=f"https://user:{CANARY}@10.1.2.3:4000/v1?key={CANARY}")
    refused = tuple(
        LevelResult(concurrency=1, pp=1000 + number, error=words) for number, words in enumerate(messages)
    )
    odd = TargetResult(
        name=f"http://me:{CANARY}@host", url="http://10.1.2.5", error=messages[4], levels=refused
    )
    return result.with_target(odd).model_copy(update={"status": "failed", "stop_reason": messages[0]})


@pytest.mark.parametrize(("form", "privacy"), ALL)
def test_no_format_holds_a_secret(form: str, privacy: SweepPrivacy) -> None:
    """Keys, tokens, passwords in addresses: in no format, whatever else is shown."""
    assert CANARY not in sweep_report(
        secret_sweep(), form, SweepPrivacy(privacy.addresses, privacy.anonymous)
    )


@pytest.mark.parametrize("form", FORMATS)
def test_addresses_are_shown_only_on_request(form: str) -> None:
    """Names stand for the servers; a request shows the address without user and query."""
    result = secret_sweep()
    assert "10.1.2" not in sweep_report(result, form)
    if form in {"md", "html", "json"}:
        assert "https://10.1.2.3:4000/v1" in sweep_report(result, form, SweepPrivacy(addresses=True))


def test_the_command_names_targets_or_their_addresses() -> None:
    """As the reader of the report can use it."""
    assert "sparktop sweep proxy alpha -c 2,4,8" not in sweep_report(full_sweep(), "md")
    assert "sparktop sweep proxy alpha --pp 100" in sweep_report(full_sweep(), "md")
    text = sweep_report(full_sweep(), "md", SweepPrivacy(addresses=True))
    assert "sweep proxy=http://10.1.2.3:4000 alpha=http://10.1.2.4:8000" in text
    assert "--slo ttft_p90_ms=2000" in text


@pytest.mark.parametrize("form", FORMATS)
def test_an_anonymous_report_has_aliases_for_names(form: str) -> None:
    """The same alias everywhere; no name, no path, no command line is left."""
    result = full_sweep(router="hamlet", alone="ophelia", model="/home/yorick/models/Model-7B")
    words = "ophelia at 10.1.2.4 reads /home/yorick/x.toml on node-x"
    targets = (result.targets[0].model_copy(update={"error": words}), *result.targets[1:])
    text = sweep_report(result.model_copy(update={"targets": targets}), form, SweepPrivacy(anonymous=True))
    for word in ("hamlet", "ophelia", "node-x", "yorick", "10.1.2", "sparktop sweep hamlet", "omega"):
        assert word not in text, word
    assert "router-1" in text
    assert "backend-1" in text
    if form in {"md", "html", "json"}:
        assert "backend-1 at (address) reads (path) on node-1" in text
        assert "Model-7B" in text


def test_aliases_are_stable_and_a_machine_has_the_number_of_its_server() -> None:
    """Two reports of one sweep have the same aliases."""
    result = full_sweep()
    level = result.targets[0].levels[0]
    sides = {"omega": level.hardware["node-x"], "alpha": level.hardware["node-y"]}
    targets = (
        result.targets[0].model_copy(update={"levels": (level.model_copy(update={"hardware": sides}),)}),
    )
    result = result.model_copy(update={"targets": targets})
    found = SweepPrivacy(anonymous=True).of_result(result)
    assert found == SweepPrivacy(anonymous=True).of_result(result)
    level = found.targets[0].levels[0]
    assert sorted(level.hardware) == ["node-1", "node-2"]
    assert sorted(level.served_by) == sorted(level.busy_batch) == ["backend-1", "backend-2"]
    assert [sorted(split) for split in level.runs_split] == [["backend-1", "backend-2"]] * 3
    assert level.each is not None
    assert level.each.backends == ("backend-1", "backend-2")


def test_published_tables_keep_their_names_and_other_files_lose_them() -> None:
    """A published source is not hidden."""
    table = load_reference("ref:spark-topologies-2026-03").series
    own = made_series("ophelia", {1: (1.0,)})
    first, *rest = SweepPrivacy(anonymous=True).of_series([own, *table])
    assert (first.name, first.source) == ("backend-1", "file-1")
    assert rest == list(table)
