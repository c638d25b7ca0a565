"""`sparktop doctor --start`: a command line, the weights that it loads, and the memory of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.cli import main
from sparktop.doctor.check import Check, Status
from sparktop.doctor.start import check_start, parse_start
from sparktop.errors import UsageError
from sparktop.hardware.checkpoint import Checkpoint
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    GpuReading,
    MemoryAsk,
    MemoryGuard,
    MemoryReading,
    NodeIdentity,
    NodeSample,
    Workloads,
)
from sparktop.model.snapshot import PastStart
from tests.hardware.conftest import safetensors

GIB = 1 << 30
IDENTITY = NodeIdentity(hostname="spark")
MEMORY = MemoryReading(
    unified=True,
    total_bytes=round(121.6 * GIB),
    available_bytes=100 * GIB,
    headroom_bytes=98 * GIB,
    page_cache_bytes=20 * GIB,
)
SPARK = NodeSample(1.0, memory=MEMORY, gpus=(GpuReading(0, "NVIDIA GB10"),))


def checks(
    command: str,
    sample: NodeSample | Failure = SPARK,
    starts: tuple[PastStart, ...] = (),
    home: str = "/nowhere",
) -> dict[str, Check]:
    return {one.name: one for one in check_start(command, sample, IDENTITY, starts, {"HF_HOME": home})}


MORE = "use smaller weights, or more machines"


def weights(place: Path) -> Path:
    """Put the weights of a small model into a folder."""
    place.mkdir(parents=True, exist_ok=True)
    safetensors(place / "model.safetensors", {"a": ("BF16", 4 << 20), "b": ("F32", 1 << 20)})
    return place


@pytest.mark.parametrize(
    ("command", "engine", "path", "asks"),
    [
        ("vllm serve o/m --gpu-memory-utilization 0.85 -tp 2", "vllm", "o/m", MemoryAsk(0.85, None, 2)),
        (
            "sudo A=1 vllm serve o/m --gpu_memory_utilization=0.7 -pp=2",
            "vllm",
            "o/m",
            MemoryAsk(0.7, None, 2),
        ),
        ("vllm serve o/m --kv-cache-memory-bytes 36864M", "vllm", "o/m", MemoryAsk(None, 36 * GIB)),
        ("vllm serve o/m --kv-cache-memory-bytes 25.5g", "vllm", "o/m", MemoryAsk(None, 25_500_000_000)),
        (
            "docker run -v /d:/m vllm/vllm-openai:v0.32.0 --model /m/x --gpu-memory-utilization .7",
            "vllm",
            "/m/x",
            MemoryAsk(0.7),
        ),
        (
            "python3 -m sglang.launch_server --model-path o/m --mem-fraction-static 0.8 --tp 4",
            "sglang",
            "o/m",
            MemoryAsk(0.8, None, 4),
        ),
        ("cd /x && llama-server -m /x/a.gguf -ngl 99 | tee log", "llamacpp", "/x/a.gguf", MemoryAsk()),
        ("vllm serve o/m --gpu-memory-utilization 85 -tp 0", "vllm", "o/m", MemoryAsk()),
    ],
)
def test_command_lines(command: str, engine: str, path: str, asks: MemoryAsk) -> None:
    """What stands before the server is skipped; a value that cannot be counts as not given."""
    title, *_ = parse_start(command)
    assert (title.engine, title.path, title.asks) == (engine, path, asks)


@pytest.mark.parametrize(
    "command", ["", "  ", "ls -l", "vllm bench", "vllm serve 'x", "a" * 20_000, "\x1b[31m"]
)
def test_nonsense_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And the exit code of a usage error."""
    assert main(["doctor", "--start", command]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("sparktop: --start: ")
    assert shown.count("\n") == 1
    assert "\x1b" not in shown
    assert len(shown) < 200


@given(st.text(max_size=300))
def test_any_text_is_a_server_or_one_clear_line(command: str) -> None:
    """Nothing else is raised."""
    try:
        title, *_ = parse_start(command)
        said = title.engine
    except UsageError as error:
        said = str(error)
    assert said
    assert "\n" not in said


def test_a_share_that_fits_or_does_not() -> None:
    """By the share of the whole memory, and what the process has taken before it looks."""
    good = checks("vllm serve o/m --gpu-memory-utilization 0.6")
    assert good["memory"].message == "vllm needs 76 GiB, can get 98 GiB (likely)"
    assert good["memory"].status is Status.OK
    cached = checks("vllm serve o/m --gpu-memory-utilization 0.7")["memory"]
    assert cached.message == "vllm needs 88 GiB, can get 98 GiB, 20 GiB of it file cache (likely)"
    assert "drop_caches" in cached.advice
    bad = checks("vllm serve o/m --gpu-memory-utilization 0.85")
    assert (bad["memory"].status, bad["memory"].message) == (
        Status.FAIL,
        "vllm needs 106 GiB, can get 98 GiB: 8.0 GiB short (likely)",
    )
    assert bad["need"].message == "106 GiB: gpu_memory_utilization 0.85 of 122 GiB + 2.6 beside it"


def test_an_earlier_start_knows_better() -> None:
    """One with the same options on this machine; one of another model says what its loader held."""
    asks = MemoryAsk(0.6)
    before = PastStart("spark", "vllm", "m", 200.0, ended_at=1.0, peak_bytes=90 * GIB, asks=asks)
    command = "vllm serve /m --gpu-memory-utilization 0.6"
    assert checks(command, starts=(before,))["memory"].message.startswith("vllm needs 90 GiB, can get 98 GiB")
    other = replace(before, asks=MemoryAsk(0.5), peak_bytes=round((0.5 * 121.6 + 2.6 + 4) * GIB))
    assert checks(command, starts=(other,))["memory"].message.startswith("vllm needs 80 GiB, can get 98 GiB")
    elsewhere = replace(before, host="spark-b")
    again = checks(command, starts=(elsewhere,))["memory"].message
    assert again == "vllm needs 76 GiB, can get 98 GiB (likely)"


def test_a_guard_that_would_act_is_named() -> None:
    """It ends a process where less is available; with free swap above its limit it does not."""
    guards = (MemoryGuard("earlyoom", 10.0, None, 10.0), MemoryGuard("systemd-oomd", 10.0, None, 10.0))
    sample = replace(SPARK, workloads=Workloads((), 0, 0.0, guards))
    command = "vllm serve o/m --gpu-memory-utilization 0.75"
    found = checks(command, sample)
    assert found["memory"].status is Status.FAIL
    said = "vllm needs 94 GiB, can get 98 GiB: earlyoom acts below 12 GiB (likely)"
    assert found["memory"].message == said
    swap = replace(MEMORY, swap_total_bytes=16 * GIB, swap_used_bytes=GIB)
    assert checks(command, replace(sample, memory=swap))["memory"].status is Status.OK


def test_what_is_not_known_is_said() -> None:
    """A server whose KV cache is not known, a machine whose memory is not known."""
    found = checks("llama-server -m /nowhere.gguf")
    assert (
        found["memory"].message
        == "llamacpp not known if it fits: no earlier start of it is known, nor its weights"
    )
    failure = Failure(FailureKind.TIMEOUT, "no answer", 1.0)
    for sample in (failure, NodeSample(1.0)):
        memory = checks("vllm serve o/m", sample)["memory"]
        assert (memory.status, memory.message) == (
            Status.SKIP,
            "not known if it fits: this machine's GPU memory is not known",
        )


def test_gpus_with_memory_of_their_own() -> None:
    """The emptiest GPUs count, as many as the weights are divided among."""
    gpus = tuple(
        GpuReading(index, memory_total_bytes=80 * GIB, memory_used_bytes=used * GIB)
        for index, used in enumerate((1, 40, 2))
    )
    sample = NodeSample(1.0, memory=MemoryReading(unified=False), gpus=gpus)
    assert checks("vllm serve m --gpu-memory-utilization 0.9 -tp 2", sample)["memory"].message == (
        "vllm needs 73 GiB, can get 78 GiB (likely)"
    )
    assert checks("vllm serve m --gpu-memory-utilization 0.9 -tp 3", sample)["memory"].status is Status.FAIL


def test_weights_in_the_cache_and_in_a_mounted_folder(tmp_path: Path) -> None:
    """Their size and types, what is left for the KV cache, what quantisation at load saves."""
    place = weights(tmp_path / "hub/models--o--m/snapshots/aaa")
    found = checks("vllm serve o/m --gpu-memory-utilization 0.5", home=str(tmp_path))
    assert found["weights"].status is Status.OK
    assert found["weights"].message == "0.0 GiB in 1 file (BF16 0.0, F32 0.0)"
    assert found["KV cache"].message == (
        "gpu_memory_utilization 0.5 is 60.8 GiB: 60.8 GiB beside the weights, with activations"
    )
    none = checks("vllm serve o/m --gpu-memory-utilization 0.00001", home=str(tmp_path))["KV cache"]
    assert none.status is Status.FAIL
    image = "vllm/vllm-openai:v1 --model /models/models--o--m/snapshots/aaa"
    assert checks(f"docker run -v {tmp_path}/hub:/models:ro {image}")["weights"].status is Status.OK
    assert checks(f"vllm serve {tmp_path}/empty")["weights"].status is Status.SKIP
    (place / "model.safetensors").write_bytes(b"short")
    assert checks("vllm serve o/m", home=str(tmp_path))["weights"].status is Status.FAIL


@pytest.mark.parametrize(
    "mount",
    [
        "-v={0}/hub:/models:ro",
        "--mount type=bind,source={0}/hub,target=/models,readonly",
        "--mount type=bind,src={0}/hub,destination=/models",
    ],
)
def test_each_way_to_mount_a_folder(tmp_path: Path, mount: str) -> None:
    """Weights are found behind it."""
    weights(tmp_path / "hub/mine")
    command = f"docker run {mount.format(tmp_path)} vllm/vllm-openai:v1 --model /models/mine"
    assert checks(command)["weights"].status is Status.OK


@pytest.mark.parametrize(
    ("weights_gib", "share", "message", "advice"),
    [
        (114.0, "0.5", "gpu_memory_utilization 0.5", "ask for 0.99 or more"),
        (115.0, "0.5", "gpu_memory_utilization 0.5", MORE),
        (200.0, "0.9", "gpu_memory_utilization 0.9", MORE),
        (200.0, "", "no room: gpu_memory_utilization 0.92, the default, is 111.9 GiB, weights 200.0", MORE),
        (115.0, "", "no room: gpu_memory_utilization 0.92, the default, is 111.9 GiB, weights 115.0", MORE),
        (90.1, "0.5", "gpu_memory_utilization 0.5", "ask for 0.80 or more"),
    ],
)
def test_a_share_that_is_advised_can_be_asked_for(
    weights_gib: float, share: str, message: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is below 1, and holds the weights; nobody is told to ask for all of the memory."""
    size = round(weights_gib * GIB)
    monkeypatch.setattr("sparktop.doctor.start.read_checkpoint", lambda *_, **__: Checkpoint(size, 1))
    options = f" --gpu-memory-utilization {share}" if share else ""
    pool = checks(f"vllm serve {tmp_path}{options}")["KV cache"]
    assert (pool.status, pool.advice) == (Status.FAIL, advice)
    assert message in pool.message


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start is judged without its weights."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", refuse)
    found = checks(f"vllm serve {tmp_path} --gpu-memory-utilization 0.6")
    assert found["weights"].message.endswith(": Permission denied")
    assert found["memory"].status is Status.OK
