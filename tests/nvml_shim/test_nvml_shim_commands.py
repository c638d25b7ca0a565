"""`sparktop snapshot` on machines whose driver is a C library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nvml_shim import shim_states as states
from tests.nvml_shim.conftest import ROOT, Shim

pytestmark = pytest.mark.process
CONFIG = """\
interval_s = 0.25
[[nodes]]
name = "here"
via = "local"
"""
Answers = dict[str, tuple[int, str]]


def machine_bytes() -> int:
    """Return MemTotal of the machine that runs the tests."""
    words = Path("/proc/meminfo").read_text(encoding="ascii").split()
    return int(words[words.index("MemTotal:") + 1]) * 1024


@pytest.fixture(scope="module")
def answers(shim: Shim) -> Answers:
    """Return exit code and output of the command on each machine, all in one process."""
    config = shim.folder / "sparktop.toml"
    config.write_text(CONFIG, encoding="utf-8")
    total = machine_bytes()
    machines = {
        "a": states.gb10(),
        "b": states.gb10(f"{total} {total // 2}"),
        "c": states.gb10("0 0"),
        "d": states.h200(),
        "e": states.eight_h100(),
        # The first sample makes 19 calls about the GPU and the second 9, during which it is lost.
        "f": f"- lost_after 22\n{states.gb10()}",
        "g": "* nvmlInitWithFlags !9\n",
    }
    words = ["snapshot", "--config", str(config), "--format"]
    jobs = [(name, "json") for name in machines] + [(name, "txt") for name in "aefg"]
    text = json.dumps([(machines[name], [*words, form]) for name, form in jobs])
    given = shim.run("run_commands.py", text=text)
    return {f"{name} {form}": (code, out) for (name, form), (code, out) in zip(jobs, given, strict=True)}


def node(answers: Answers, name: str) -> dict[str, Any]:
    code, out = answers[f"{name} json"]
    assert code == 0
    (found,) = json.loads(out)["nodes"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_json_of_a_gb10(answers: Answers, name: str) -> None:
    """A GB10 has unified memory for each answer that means so; unknown values are null."""
    found = node(answers, name)
    (gpu,) = found["gpus"]
    assert (gpu["name"], gpu["utilization_percent"], gpu["power_w"]) == ("NVIDIA GB10", 96.0, 38.25)
    assert (gpu["memory_total_bytes"], gpu["memory_used_bytes"], gpu["power_limit_w"]) == (None, None, None)
    assert (gpu["temperature_c"], gpu["limit_margin_c"]) == (81.0, 13.0)
    assert gpu["throttle_reasons"] == ["software power cap"]
    assert [one["name"] for one in gpu["processes"]] == ["VLLM::Worker_TP0", "Xorg"]
    assert found["memory"]["unified"] is True


def test_json_of_discrete_gpus(answers: Answers) -> None:
    """One H200 and eight H100 each have their own memory."""
    (gpu,) = node(answers, "d")["gpus"]
    assert (gpu["name"], gpu["memory_total_bytes"]) == ("NVIDIA H200", 141 * states.GIB)
    found = node(answers, "e")
    assert [one["memory_total_bytes"] for one in found["gpus"]] == [80 * states.GIB] * 8
    assert found["memory"]["unified"] is False


def test_json_of_a_gpu_that_is_lost(answers: Answers) -> None:
    """If the GPU is lost there is none in the JSON, and the machine and its memory are reported."""
    found = node(answers, "f")
    assert (found["ok"], found["gpus"], found["memory"]["unified"]) == (True, [], True)
    assert found["memory"]["total_bytes"] == machine_bytes()
    assert found["gpu_note"] == "GPU 0 does not answer any more: the driver lost it"


def test_json_without_a_driver(answers: Answers) -> None:
    """If the driver is not loaded, the JSON says so."""
    found = node(answers, "g")
    assert (found["ok"], found["gpus"], found["memory"]["unified"]) == (True, [], None)
    assert found["gpu_note"] == "the NVIDIA driver is not loaded"


def test_text_tells_what_json_tells(answers: Answers) -> None:
    """The text has the figures of the JSON, and the reason if there is no GPU."""
    for name, words in (
        ("a", ("NVIDIA GB10", " 96 ", " 38 ", " 81 ")),
        ("e", ("8 x NVIDIA H100 80GB H",)),
        ("f", ("GPU 0 does not answer",)),
        ("g", ("the NVIDIA driver is n",)),
    ):
        code, out = answers[f"{name} txt"]
        assert code == 0
        assert all(word in out for word in words)


def test_a_machine_without_the_library(tmp_path: Path) -> None:
    """The command runs on a machine where the library cannot be loaded."""
    (tmp_path / "libnvidia-ml.so.1").touch()
    config = tmp_path / "sparktop.toml"
    config.write_text(CONFIG, encoding="utf-8")
    env = {**os.environ, "HOME": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = ["snapshot", "--config", str(config), "--format", "txt"]
    command = [sys.executable, "-m", "sparktop", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)  # noqa: S603 - fixed
    assert (done.returncode, done.stderr) == (0, "")
    assert "no NVIDIA driver on" in done.stdout
