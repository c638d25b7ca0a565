"""Results are written completely or not at all.

`sparktop config --check` also checks whether presets of sweeps can be run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.commands.output import tell, write_parts
from sparktop.errors import OutputError
from tests.commands.process import ran


def test_a_pipe_that_nobody_reads_any_more_is_an_error(tmp_path: Path) -> None:
    """A named pipe whose reader has gone is said, and standard output stays what it was."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def parts() -> Iterator[bytes]:
        os.close(reader)
        yield b"x" * (1 << 20)

    before = os.fstat(1)
    with pytest.raises(OutputError, match=r"pipe: cannot be written: Broken pipe$"):
        write_parts(path, parts())
    assert os.fstat(1) == before


def test_messages_are_clean_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of a message begins with the program's name and has no escape sequences."""
    tell("one\x1b[31m\ntwo")
    assert capsys.readouterr().err == "sparktop: one [31m\nsparktop: two\n"


@pytest.mark.process
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", [["config", "--default"], ["agent", "--print-bundle"]])
def test_a_result_that_is_cut_off_is_an_error(command: list[str], unbuffered: str, tmp_path: Path) -> None:
    """If standard output takes only a part, the exit code is 1, with and without a buffer."""
    path = tmp_path / "out"
    with path.open("wb") as out:
        done = ran(tmp_path, *command, out=out, most_bytes=4096, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, path.stat().st_size) == (1, 4096)
    assert "sparktop: standard output" in done.stderr
    assert "File too large" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("report", "FILE"),
        ("report", "last.json", "mine=FILE"),
        ("compare", "FILE"),
        ("dump", "FILE"),
        ("snapshot", "--from", "FILE"),
        ("snapshot", "--config", "FILE"),
        ("capacity", "--from", "FILE"),
        ("sweep", "127.0.0.1:9", "--prompts", "FILE"),
        ("sweep", "127.0.0.1:9", "--trace", "FILE"),
    ],
)
def test_no_command_overwrites_what_it_reads(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by another name of the file: it is refused in one line, and the file stays."""
    path, link = tmp_path / "x.json", tmp_path / "link.json"
    path.write_text('{"text": "mine"}\n')
    link.symlink_to(path)
    named = [word.replace("FILE", str(path)) for word in words]
    assert main([*named, "-o", str(link)]) == 1
    assert capsys.readouterr().err.strip() == (
        f"sparktop: {link}: this command reads it; name another file for -o"
    )
    assert path.read_text() == '{"text": "mine"}\n'


RATE = "is not a rate: write requests per second from 0.001 to 10,000, as in 0.5,1,2 or 0.5..4"


def said(folder: Path, lines: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return (exit code, standard error) of the check of a preset with these `lines`."""
    path = folder / "sparktop.toml"
    path.write_text(f'[[sweeps]]\nname = "mine"\n{lines}\n', encoding="utf-8")
    code = main(["config", "--check", str(path)])
    return code, capsys.readouterr().err.strip().replace(f"sparktop: {path}:", "")


@pytest.mark.parametrize(
    ("lines", "line", "key", "fault"),
    [
        ('rate = "1,x"', 3, "rate", f"is not usable: x {RATE}"),
        ("rate = 0", 3, "rate", "must be text in quotes, not 0"),
        (
            'rate = "1"\narrivals = "often"',
            *(4, "arrivals", "must be poisson, constant, bursty, trains or gamma:B"),
        ),
        (
            'rate = "10000"\nduration_s = 3600',
            *(3, "rate", "is not usable: 10000 /s for 3600 s are 36,000,000 requests: at most 1,000,000 fit"),
        ),
        ("users = [4]", 3, "users", 'was removed: agents with workload = "chat" read and pause as people'),
        (
            'agents = [1]\nworkload = "codr"',
            *(4, "workload", "is not usable: there is no workload 'codr': did you mean 'coder'?"),
        ),
        ("agents = [1]\ntg = 64", 4, "tg", "has no effect beside agents: leave it out"),
    ],
)
def test_a_load_that_cannot_be_used_is_a_line(
    lines: str, line: int, key: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unusable load gives a line with file, line number, key, fault and remedy; exit code 2."""
    assert said(tmp_path, lines, capsys) == (2, f"{line}: key 'sweeps[0].{key}' {fault}")


def test_a_trace_and_a_workload_are_read_from_the_folder_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative names of traces and workloads start at the configuration's folder; their faults are shown."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, message = said(tmp_path, 'trace = "day.jsonl"', capsys)
    assert code == 2
    assert message.startswith("3: key 'sweeps[0].trace' is not usable: ")
    (tmp_path / "day.jsonl").write_text(
        '{"timestamp": 0, "input_length": 5, "output_length": 5}\n', encoding="utf-8"
    )
    assert said(tmp_path, 'trace = "day.jsonl"', capsys)[0] == 0
    code, message = said(tmp_path, 'trace = "day.jsonl"\ntrace_range = "9..1"', capsys)
    assert (
        message == "4: key 'sweeps[0].trace_range' is not usable: '9..1' is empty: it ends before it begins"
    )
    (tmp_path / "mine.toml").write_text(
        "new_tokens = 9\noutput_tokens = 9\nhuman_requests = 0\nmax_context_tokens = 900\n", encoding="utf-8"
    )
    code, message = said(tmp_path, 'agents = [1]\nworkload = "mine.toml"', capsys)
    assert code == 2
    assert "human_requests must be from 1" in message
    assert message.startswith("4: key 'sweeps[0].workload' is not usable: ")
