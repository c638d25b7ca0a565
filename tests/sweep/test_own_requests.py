"""A user's own prompts, body fields and headers: what is sent, what is stored, and what never is.

Speculative acceptance stands beside the rates of a level.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktop.cli import main
from sparktop.model.targets import SweepSpec
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import LevelSeries, series_of
from sparktop.sweep.formats.written import repeat_command
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.plan.texts import TEXTS, text_at
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import stored_sweeps
from sparktop.sweep.run.result_builder import plan_result
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.words import headline
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.test_sweep_command import Command

SECRETS = ("hunter-in-a-header", "hunter-in-a-body", "hunter-in-a-list")
EXTRA = {"temperature": 0, "user": SECRETS[1], "metadata": {"tags": [SECRETS[2]]}}
PROMPTS = [
    {"prompt": "first alpha"},
    {"messages": [{"role": "system", "content": "be short"}, {"role": "user", "content": "second beta"}]},
    {"conversations": [{"from": "human", "value": "third gamma"}, {"from": "gpt", "value": "answer"}]},
    {"body": {"model": "x", "messages": [{"role": "user", "content": "fourth delta"}]}},
]


def _words(server: StreamServer, file: Path) -> list[str]:
    load = ["-c", "4", "--runs", "2", "--tg", "9", "--seed", "3", "--no-warm-up"]
    own = ["--prompts", str(file), "--extra-body", json.dumps(EXTRA), "--header", f"X-Tenant: {SECRETS[0]}"]
    return ["--target", f"solo={server.url}", *load, *own]


def _file(folder: Path) -> Path:
    file = folder / "day.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in PROMPTS), encoding="utf-8")
    return file


@pytest.mark.process
async def test_what_was_sent_is_recorded_without_secrets(command: Command, server: StreamServer) -> None:
    """Each request holds a prompt of the file, the fields and the header; nothing kept holds a secret."""
    seen: list[Asked] = []

    async def answer(asked: Asked) -> None:
        seen.append(asked)
        await asked.stream()

    server.behave = answer
    code, out, err = await command.run(*_words(server, _file(command.home)), "-o", "result.json")
    assert code == 0, err
    measured = [one for one in seen if one.tokens == 9]
    assert len(measured) == 8
    sent = [one.prompt for one in measured]
    assert set(sent) == {"first alpha", "be short second beta", "third gamma", "fourth delta"}
    for one in seen:
        assert one.headers["x-tenant"] == SECRETS[0]
        assert {key: one.body[key] for key in EXTRA} == EXTRA
    ((path, kept),) = stored_sweeps(command.folder).items()
    assert isinstance(kept, SweepResult)
    plan = kept.plan
    assert plan.pp is None
    assert plan.prompts is not None
    assert (plan.prompts.name, plan.prompts.count, len(plan.prompts.digest or "")) == ("day.jsonl", 4, 64)
    assert list(plan.extra_body) == list(EXTRA)
    assert plan.extra_body["temperature"] == 0
    assert plan.headers == ("X-Tenant",)
    assert [level.counted_prompt_tokens is not None for level in kept.targets[0].levels] == [True]
    written = [file for file in command.home.rglob("*") if file.is_file() and file.name != "day.jsonl"]
    assert command.home / "result.json" in written
    texts = [out, err, *(file.read_text("utf-8", "replace") for file in written)]
    for form in ("md", "html", "csv", "post"):
        target = command.home / f"report.{form}"
        assert main(["report", str(path), "--format", form, "-o", str(target)]) == 0
        texts.append(target.read_text(encoding="utf-8"))
        assert "day.jsonl" in texts[-1] or form == "csv"
    for secret in SECRETS:
        assert not [text for text in texts if secret in text]


@pytest.mark.process
async def test_a_server_that_repeats_them_is_not_quoted(command: Command, server: StreamServer) -> None:
    """The words of a refusal stand in the result; what the user added to the request is left out of them."""

    async def refuse(asked: Asked) -> None:
        asked.refuse(422, f"not usable: {asked.headers['x-tenant']} {json.dumps(asked.body)}"[:400])

    server.behave = refuse
    code, out, err = await command.run(*_words(server, _file(command.home)))
    assert code != 0
    texts = [out, err, *(path.read_text(encoding="utf-8") for path in stored_sweeps(command.folder))]
    assert "not usable" in out + err
    for secret in SECRETS:
        assert not [text for text in texts if secret in text]


def test_sweeps_that_sent_other_things_are_not_compared_as_equals(tmp_path: Path) -> None:
    """Other prompts share no row; other body values, even hidden ones, are named under the table."""

    def sent(name: str, words: str, user: str) -> LevelSeries:
        file = tmp_path / "day.jsonl"
        file.write_text(json.dumps({"prompt": words}), encoding="utf-8")
        spec = SweepSpec(concurrency=(1,), prompts=str(file), extra_body={"user": user})
        plan = plan_result(make_plan(spec, [SweepTarget(name, "http://127.0.0.1:1")]))
        return series_of(made_sweep((name, [made_level(1, pp=None)])).model_copy(update={"plan": plan}))[0]

    first = sent("a", "own words", "aaaaaaaa")
    bodies = compare([first, sent("b", "own words", "b")])
    prompts = compare([first, sent("c", "other words", "aaaaaaaa")])
    assert "not alike: requests: " in "\n".join(bodies.notes)
    assert "not alike: prompts: day.jsonl" in "\n".join(prompts.notes)
    assert "aaaaaaaa" not in "\n".join((*bodies.notes, *prompts.notes))
    assert bodies.rows
    assert not prompts.rows


@pytest.mark.outside
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--extra-body", "{temperature: 0}"], "--extra-body: must be a JSON object"),
        (["--extra-body", '{"stream": false}'], "the sweep sets stream itself"),
        (["--header", "X-Key: hush\nX-More: 1"], "the value of X-Key"),
        (["--header", "Authorization: Bearer hush"], "--api-key-env"),
        (["--prompts", "none.jsonl"], "none.jsonl: cannot be read: No such file"),
        (["--prompts", "/dev/zero"], "not a regular file"),
        (["--prompts", "bad.jsonl"], "bad.jsonl, line 2: is not JSON"),
        (["--prompts", "huge.jsonl"], "huge.jsonl: is larger than 64 MiB"),
        (["--prompts", "many.txt"], "many.txt: has more than 100,000 prompts"),
        (["--prompts", "good.txt", "--pp", "5"], "leave out --pp"),
    ],
)
def test_what_cannot_be_sent_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bad JSON, files that are too large, empty or broken, and headers that are none end with exit code 2."""
    monkeypatch.chdir(tmp_path)
    _broken_files(tmp_path)
    assert main(["sweep", "http://127.0.0.1:1", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert len(said.err) < 300
    assert "hush" not in said.err
    assert said.out == ""


def _broken_files(folder: Path) -> None:
    files = {
        "bad.jsonl": b'{"prompt": "a"}\n{"prompt": \n',
        "many.txt": b"x\n" * 100_001,
        "good.txt": b"one\ntwo\n",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with (folder / "huge.jsonl").open("wb") as stream:
        stream.truncate(2 << 30)


_PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="tiny"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="tiny"}} 0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="tiny"}} {prompt}
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {generated}
"""
_SPECULATION = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="tiny"}} {drafts}
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="tiny"}} {drafted}
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} {accepted}
"""


ACCEPTED = {"a Python module": 27, "of a story": 12, "name,owner": 24, "calls of an agent": 18}
"""Accepted tokens of an answer to a built-in text, by words of its prompt."""


class Vllm:
    """A server whose counters grow with each answer: 10 drafts of 3 tokens, accepted as `ACCEPTED` says."""

    idle_s = None

    def __init__(self, *, speculates: bool) -> None:
        self._text = _PAGE + (_SPECULATION if speculates else "")
        self._done = 5
        self._accepted = 105
        self.asked: list[Asked] = []
        self._running = 0

    async def answer(self, asked: Asked) -> None:
        """Stream what is asked for."""
        self._running += 1
        self.asked.append(asked)
        await asked.stream()
        self._running -= 1
        self._done += 1
        kinds = (share for opening, share in ACCEPTED.items() if opening in asked.prompt)
        self._accepted += next(kinds, 21)

    @property
    def small(self) -> Callable[[str, dict[str, str], dict[str, Any]], bytes | None]:
        """The metrics page; other requests have their usual responses."""
        return lambda path, _headers, _body: self._page() if path.startswith("/metrics") else None

    def _page(self) -> bytes:
        done = self._done
        counts = {"prompt": 45 * done, "generated": 9 * done, "drafts": 10 * done}
        text = self._text.format(running=self._running, drafted=30 * done, accepted=self._accepted, **counts)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n"
        return f"{head}{text}".encode()


@pytest.mark.process
@pytest.mark.parametrize("speculates", [True, False])
async def test_each_kind_of_text_has_a_level_with_its_acceptance(tmp_path: Path, *, speculates: bool) -> None:
    """The headline is of the lowest concurrency and has the most and the least accepted kind.

    No two measured prompts are equal. The result's command sends the same load again.
    """
    behaviour = Vllm(speculates=speculates)
    server = StreamServer(behaviours={"vllm": behaviour})
    await server.start()
    command = Command(tmp_path)
    words = ("--target", f"a={server.url}/vllm", "--preset", "kinds", "-c", "1,2", "--runs", "1", "--tg", "9")
    code, _, err = await command.run(*words, "--no-warm-up")
    await server.stop()
    assert code == 0, err
    measured = [one for one in behaviour.asked if any(opening in one.prompt for opening in ACCEPTED)]
    assert len(measured) == len({one.prompt for one in measured}) == 12
    assert all(one.body["temperature"] == 0 for one in measured)
    ((path, kept),) = stored_sweeps(command.folder).items()
    assert isinstance(kept, SweepResult)
    levels = kept.targets[0].in_order()
    names = [f"c = {at} {one}" for at in (1, 2) for one in TEXTS]
    assert [one.point.label for one in levels] == names
    shares = [
        (one.server.spec_accept_percent, one.server.spec_accepted_per_draft) for one in levels if one.server
    ]
    expected = [(90.0, 2.7), (40.0, 1.2), (80.0, 2.4), (60.0, 1.8)] * 2
    assert shares == (expected if speculates else [(None, None)] * 8)
    found = headline(kept, None) or ""
    if speculates:
        assert re.match(
            r"code [\d.,]+ tok/s.* \(90 % of drafts accepted\).*; prose .* \(40 %\).*; table", found
        )
    else:
        assert re.match(r"code [\d.,]+ tok/s.*; prose .*; table .*; agent [\d.,]+ tok/s", found)
    for plot in sweep_plots(kept):
        drawn = [line.name for line in plot.lines]
        assert drawn == [one for one in TEXTS if one in drawn]
    repeated = repeat_command(kept)
    assert "--preset kinds -c 1,2 --pp 512 --tg 9" in repeated
    assert "--prompts" not in repeated
    for form in ("md", "csv", "html"):
        assert main(["report", str(path), "--format", form, "-o", str(tmp_path / f"r.{form}")]) == 0
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "built-in texts: code, prose, table, agent" in text
    assert "own prompts" not in text
    assert ("Accepted" in text) is speculates
    assert not speculates or "40 %" in text
    assert "spec_accept_percent" in (tmp_path / "r.csv").read_text(encoding="utf-8")
    assert "c2 code" in text


@pytest.mark.parametrize("kind", TEXTS)
def test_built_in_texts_differ_in_their_first_words(kind: str) -> None:
    """Each has about the length asked for, four letters a token; the same number and salt give the same."""
    made = [text_at(kind, 512, number, salt)[0] for number in range(50) for salt in ("a", "b")]
    assert len({one[:12] for one in made}) == len(made)
    assert all(500 <= len(one) / 4 <= 640 for one in made)
    assert text_at(kind, 512, 49, "b")[0] == made[-1]
