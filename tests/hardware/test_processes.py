"""Processes: the table, engines' processes, their titles and their containers."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.hardware.processes import (
    ContainerReader,
    ProcessTableReader,
    Title,
    WorkloadReader,
    arguments_of,
    ask_names,
    container_id,
    parse_stat,
    read_names,
    read_sockets,
    read_title,
)
from sparktop.model.node import MemoryAsk, MemoryGuard, Sockets, end_marks
from tests.hardware.conftest import process, stat_line, title_of
from tests.hardware.gb10_root import write
from tests.known import known

PAGE = 4096
KERNEL_THREAD = 0x208040


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return the root of a machine with an engine, a shell and a kernel thread."""
    write(tmp_path, "proc/7/stat", stat_line(7, "kworker/0:1", flags=KERNEL_THREAD, rss_pages=0))
    write(tmp_path, "proc/900/stat", stat_line(900, "bash", ticks=20, rss_pages=50))
    write(tmp_path, "proc/4242/stat", stat_line(4242, "python3", ticks=1000, rss_pages=9000))
    write(tmp_path, "proc/meminfo", "MemTotal: 1 kB\n")
    write(tmp_path, "proc/self", "no folder\n")
    return tmp_path


def make_reader(root: Path) -> ProcessTableReader:
    return ProcessTableReader(root, page_bytes=PAGE, ticks_per_s=100)


def test_the_largest_come_first_and_kernel_threads_not_at_all(tree: Path) -> None:
    """Processes are sorted by resident memory; kernel threads and other entries of /proc are left out."""
    table = make_reader(tree).read(0.0)
    found = [(one.pid, one.name, one.memory_bytes, one.cpu_percent) for one in table.processes]
    assert found == [(4242, "python3", 9000 * PAGE, None), (900, "bash", 50 * PAGE, None)]
    assert (table.count, table.age_s) == (2, 0.0)


def test_processor_use_is_of_the_time_between_tables(tree: Path) -> None:
    """CPU use is over the time between two tables: 750 ticks of 1/100 s in 5 s are 150 %."""
    reader = make_reader(tree)
    reader.read(0.0)
    write(tree, "proc/4242/stat", stat_line(4242, "python3", ticks=1750, rss_pages=9000))
    assert [one.cpu_percent for one in reader.read(5.0).processes] == [150.0, 0.0]


def test_200_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    """The 200 largest processes are listed, and all are counted."""
    for pid in range(1, 251):
        write(tmp_path, f"proc/{pid}/stat", stat_line(pid, f"p{pid}", rss_pages=pid))
    table = make_reader(tmp_path).read(0.0)
    assert (table.count, len(table.processes)) == (250, 200)
    assert [one.pid for one in table.processes] == list(range(250, 50, -1))


def test_a_process_that_vanishes_or_hides_is_skipped(tree: Path) -> None:
    """A process whose files cannot be read is left out; the others are listed."""
    (tree / "proc/902").mkdir()
    (tree / "proc/903/stat").mkdir(parents=True)
    write(tree, "proc/904/stat", "904 (cut) S 1 2\n")
    write(tree, "proc/905/stat", b"\xff\n")
    assert make_reader(tree).read(0.0).count == 2


@pytest.mark.parametrize(
    ("comm", "command", "name"),
    [
        ("VLLM::Worker_TP", b"VLLM::Worker_TP0\0\0\0", "VLLM::Worker_TP0"),
        ("fifteen-letters", b"something else\0", "fifteen-letters"),
        ("a) R (b", b"", "a) R (b"),
        ("evil\x1b[2J\u202e", b"", "evil [2J"),
        ("", b"", "pid 900"),
    ],
)
def test_a_name_is_whole_and_clean(tree: Path, comm: str, command: bytes | None, name: str) -> None:
    """A name cut at 15 bytes by the kernel is completed from the command line, and cleaned."""
    write(tree, "proc/900/stat", stat_line(900, comm, rss_pages=50))
    if command is not None:
        write(tree, "proc/900/cmdline", command)
    assert make_reader(tree).read(0.0).processes[1].name == name


@given(st.binary(max_size=400))
def test_whatever_a_stat_file_holds_is_a_process_or_none(content: bytes) -> None:
    """Any content of a stat file gives a process or None, without an error."""
    found = parse_stat(1, content)
    assert found is None or found.rss_pages >= 0


ID = "0123456789abcdef" * 4


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    """Return the root of a machine with a vLLM server in a container, its engine core and a shell."""
    process(tmp_path, 90, "bash")
    process(tmp_path, 100, "/usr/bin/python3", "/usr/bin/vllm", "serve", "Qwen/Qwen3-32B", "--port", "8001")
    process(tmp_path, 101, "VLLM::EngineCore", parent=100, rss_pages=500)
    for pid in (100, 101):
        write(tmp_path, f"proc/{pid}/cgroup", f"0::/docker/{ID}\n")
    write(tmp_path, "proc/101/io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n")
    return tmp_path


def workloads(root: Path) -> WorkloadReader:
    return WorkloadReader(root, since_boot=lambda: 160.0, page_bytes=4096, ticks_per_s=100)


def test_an_engine_core_belongs_to_its_server(engines: Path) -> None:
    """A process without options has the model, container and server of its parent."""
    found = workloads(engines).read(0.0)
    server, core = found.processes
    assert (server.role, server.model, server.port, server.server) == ("server", "Qwen/Qwen3-32B", 8001, 100)
    assert (core.about, core.model, core.server) == ("engine core", "Qwen/Qwen3-32B", 100)
    assert (core.container, core.memory_bytes) == ("0123456789ab", 500 * 4096)
    assert (core.age_s, core.read_bytes) == (60.0, 4096)
    assert server.read_bytes is None


def test_what_holds_gpu_memory_is_a_workload_of_no_engine(engines: Path) -> None:
    """A process that holds GPU memory is a workload without an engine; one that has ended is left out."""
    found = workloads(engines).read(0.0, {90, 4711})
    shell = found.processes[0]
    assert (shell.pid, shell.engine, shell.role, shell.server) == (90, None, None, None)
    assert len(found.processes) == 3


_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def socket_line(local: str, other: str, state: str, inode: int) -> str:
    """Return a line of /proc/net/tcp."""
    queues = "00000000:00000000 00:00000000 00000000"
    return f"   0: {local} {other} {state} {queues}  1000        0 {inode} 1 0\n"


LISTENS = socket_line("00000000:1F41", "00000000:0000", "0A", 500)


def test_a_server_has_the_connections_at_its_port(engines: Path) -> None:
    """Both families count, in the server's network namespace; other ports and its own clients do not."""
    end = "0100007F:C001" if sys.byteorder == "little" else "7F000001:C001"
    mapped = "0000000000000000FFFF0000" + ("0900000A" if sys.byteorder == "little" else "0A000009")
    lines = LISTENS + socket_line("0100007F:1F41", end, "01", 501)
    lines += socket_line("0100007F:1F41", end, "08", 502) + socket_line(end, "0100007F:1F41", "01", 503)
    lines += socket_line("0100007F:1F42", end, "01", 504) + "a line that is none\n"
    write(engines, "proc/100/net/tcp", _HEAD + lines)
    write(engines, "proc/100/net/tcp6", _HEAD + socket_line("0" * 32 + ":1F41", f"{mapped}:C002", "01", 505))
    write(engines, "proc/net/tcp", _HEAD)
    server, core = workloads(engines).read(0.0).processes
    marks = (end_marks("127.0.0.1", 0xC001), end_marks("10.0.0.9", 0xC002))
    assert server.sockets == Sockets(marks, hung_up=1, bridged=True)
    assert core.sockets is None
    write(engines, "proc/net/tcp", _HEAD + LISTENS)
    assert not known(workloads(engines).read(0.0).processes[0].sockets).bridged


@pytest.mark.parametrize("lines", [None, "", socket_line("0100007F:1F41", "0100007F:C001", "01", 501)])
def test_connections_are_unknown_where_nothing_listens(engines: Path, lines: str | None) -> None:
    """A server that is reached otherwise, or whose file cannot be read, has unknown connections, not none."""
    if lines is not None:
        write(engines, "proc/100/net/tcp", _HEAD + lines)
    assert workloads(engines).read(0.0).processes[0].sockets is None


@pytest.mark.outside
@pytest.mark.parametrize(
    ("asks", "answer", "only_asks"),
    [
        ((b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.2:8000\r\n\r\n",), 20_000, True),
        ((b"POST /v1/completions HTTP/1.1\r\n" + bytes(60_000),), 200, False),
        (
            (b"GET /v1/realtime HTTP/1.1\r\nHost: 10.0.0.2:8000\r\n\r\n", *(b"\x8a\x84pong",) * 20),
            20_000,
            False,
        ),
    ],
    ids=["page", "long prompt", "WebSocket"],
)
def test_the_kernel_tells_when_a_connection_asked_last(
    asks: tuple[bytes, ...], answer: int, *, only_asks: bool
) -> None:
    """A monitor's last request is as old as it is; what looks otherwise has not asked since the start."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ask in asks:
                client.sendall(ask)
                left = len(ask)
                while left:
                    left -= len(accepted.recv(left))
            accepted.sendall(bytes(answer))
            while answer:
                answer -= len(client.recv(answer))
            # A list that is read while other sockets come and go may lack a line, or have one twice.
            reads = (read_sockets("/proc", os.getpid(), port, contained=False) for _ in range(100))
            (asked_s,) = next(
                found.asked_s for found in reads if found is not None and len(found.asked_s) == 1
            )
    assert (known(asked_s) < time.monotonic() / 2) is only_asks


@pytest.mark.parametrize(
    ("init", "chain", "adopted"),
    [
        ("tini", (), True),
        ("systemd", ("VLLM::EngineCore",), True),
        ("bash", ("VLLM::EngineCore",), True),
        ("raylet", (), False),
        ("python3", (), False),
        ("tini", ("VLLM::APIServer_0",), None),
        ("tini", ("vllm",), None),
    ],
)
def test_a_process_whose_server_is_gone_was_adopted(
    tmp_path: Path,
    init: str,
    chain: tuple[str, ...],
    adopted: bool | None,  # noqa: FBT001 - a parameter of the table above
) -> None:
    """Only an init process above nothing but parts of an engine shows that the server has ended."""
    process(tmp_path, 50, init, parent=1)
    for place, name in enumerate(chain):
        process(tmp_path, 60 + place, name, *(("serve", "m") if name == "vllm" else ()), parent=50)
    process(tmp_path, 90, "VLLM::Worker_TP0", parent=60 if chain else 50)
    found = workloads(tmp_path).read(0.0)
    assert known(found.of(90)).adopted is adopted


OTHER = "f" * 64


@pytest.mark.parametrize(
    "line",
    [
        f"0::/system.slice/docker-{ID}.scope",
        f"0::/docker/{ID}",
        f"0::/machine.slice/libpod-{ID}.scope/container",
        f"0::/kubepods.slice/kubepods-burstable-pod0a_b.slice/cri-containerd-{ID}.scope",
        f"9:name=systemd:/\n4:memory:/docker/{ID}\n0::/",
        f"0::/docker/{OTHER}/docker/{ID}",
    ],
)
def test_each_form_of_a_cgroup_names_its_container(line: str) -> None:
    """Container ids are found for Docker, Podman, Kubernetes, containerd, cgroup v1 and nested containers."""
    assert container_id(line.encode()) == ID


def http(body: object, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}".encode()


UNNAMED = [1, {"Id": 2}, {"Id": ID, "Names": []}]


@pytest.mark.parametrize("answer", [b"", http([], "500 x"), http(UNNAMED), b"HTTP/1.0 200 OK\r\n\r\n[" * 9])
def test_other_answers_have_no_names(answer: bytes) -> None:
    """Failed or malformed answers give no names."""
    assert read_names(answer) == {}


@pytest.mark.outside
def test_names_come_from_a_socket(tmp_path: Path) -> None:
    """Names are read from the Docker socket in the background; a socket without a server gives none."""
    path = tmp_path / "run" / "docker.sock"
    write(tmp_path, "proc/7/cgroup", f"0::/docker/{ID}\n")
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(10)

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(4096)
                line.sendall(http([{"Id": ID, "Names": ["/engine"]}]))

        thread = threading.Thread(target=serve)
        thread.start()
        reader = ContainerReader(tmp_path)
        assert reader.find(7, 1) == ("0123456789ab", None)
        reader.learn_names(0.0)
        thread.join(10)
        known(reader._thread).join(10)
        assert reader.find(7, 1) == ("0123456789ab", "engine")
    assert ask_names(str(path)) == {}


@pytest.mark.parametrize(
    ("engine", "title", "role", "rank"),
    [
        ("vllm", "VLLM::APIServer_0", "API server", None),
        ("vllm", "VLLM::EngineCore_DP0", "engine core", "DP0"),
        ("vllm", "VLLM::Worker_DP0_PP0_PCP0_TP1_DCP0_EP1", "worker", "DP0 PP0 PCP0 TP1 DCP0 EP1"),
        ("vllm", "mine::EngineCore_DP3", "engine core", "DP3"),
        ("vllm", "ray::RayWorkerProc.initialize_worker", "worker, loading", None),
        (
            "sglang",
            "sglang::scheduler_DP0_PP0_ATTN_CP0_MOE_DP0_TP1_EP1",
            "scheduler",
            "DP0 PP0 CP0 DP0 TP1 EP1",
        ),
        ("sglang", "sglang::tokenizer_worker:312", "tokenizer", None),
    ],
)
def test_titles_have_role_and_ranks(engine: str, title: str, role: str, rank: str | None) -> None:
    """The parts of a worker's title are its role and its ranks by kind of parallelism."""
    assert read_title([title]) == Title(engine, role, rank)


@pytest.mark.parametrize(
    ("line", "engine", "model", "port"),
    [
        ("vllm serve Qwen/Qwen3-32B --port 8001", "vllm", "Qwen/Qwen3-32B", 8001),
        ("/usr/bin/python3 /usr/local/bin/vllm serve --model /models/a.b/ -tp 2", "vllm", "a.b", 8000),
        ("python3 -m sglang.launch_server --model-path org/m", "sglang", "org/m", 30000),
        ("llama-server -m /m/gemma-q4.gguf --port 8081", "llamacpp", "gemma-q4", 8081),
        ("trtllm-serve serve x --port 77777", "trtllm", "serve", None),
        ("ollama serve", "ollama", None, 11434),
    ],
)
def test_a_server_names_its_model_and_port(line: str, engine: str, model: str | None, port: int) -> None:
    """Model and port are read from a server's command line; the rest, which may contain keys, is not kept."""
    title = title_of(line.split())
    assert title._replace(path=None, flags=(), asks=None, command=None) == Title(
        engine, "server", None, model, port
    )


def test_of_an_option_that_is_given_twice_the_last_counts() -> None:
    """As for vLLM, SGLang and llama.cpp, whose start scripts add options behind the usual ones."""
    line = "vllm serve --model a --port 1 --max-num-seqs 16 --port 2 --max-num-seqs 4"
    title = title_of([*line.split(), "--model", "b"])
    assert (title.model, title.port, title.flags) == ("b", 2, ("--max-num-seqs 4",))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "python3 -m vllm.entrypoints.openai.api_server --model /home/me/m -tp 2 --api-key=s3cret",
            "vllm serve --model m -tp 2 --api-key=…",
        ),
        (
            "vllm serve /h/models--openai--oss/snapshots/1 --host 10.0.0.1 --kv_cache_dtype=fp8 -O3",
            "vllm serve openai/oss --host … --kv_cache_dtype=fp8 -O3",
        ),
        (
            """vllm serve m --compilation-config '{"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 24, 32]}'""",
            """vllm serve m --compilation-config '{"cudagraph_capture_sizes":[1,2,4,8,16,24,32]}'""",
        ),
        (
            "vllm serve m --tool-call-parser openai --enable-auto-tool-choice --seed-of-mine a b",
            "vllm serve m --tool-call-parser openai --enable-auto-tool-choice --seed-of-mine … …",
        ),
        (
            "llama-server -m /m/a.gguf -ngl -1 -hft s3cret --api-key -s3cret",
            "llama-server -m a -ngl -1 … … --api-key …",
        ),
        ("ollama serve", "ollama serve"),
    ],
)
def test_a_command_line_can_be_repeated_and_has_no_secret(line: str, shown: str) -> None:
    """In its order, with values of known options alone; lists are whole, folders of a model are left out."""
    title = title_of(shlex.split(line))
    assert title.command == shown


@given(st.binary(max_size=300))
def test_any_command_line_can_be_read(content: bytes) -> None:
    """Any command line can be parsed, because other users choose theirs freely."""
    read_title(arguments_of(content))


@pytest.mark.parametrize(
    ("arguments", "guard"),
    [
        (("/usr/bin/earlyoom",), MemoryGuard("earlyoom", 10.0, None, 10.0)),
        (("earlyoom", "-r", "3600", "-m", "15,8", "-s", "100"), MemoryGuard("earlyoom", 15.0, None, 100.0)),
        (("earlyoom", "-M", "4194304,1"), MemoryGuard("earlyoom", None, 4 << 30, 10.0)),
        (("earlyoom", "-m5", "-M", "x"), MemoryGuard("earlyoom", 5.0, None, 10.0)),
        (("/lib/systemd/systemd-oomd",), MemoryGuard("systemd-oomd", 20.0, None, 20.0)),
    ],
)
def test_what_ends_processes_where_memory_runs_out(
    tmp_path: Path, arguments: tuple[str, ...], guard: MemoryGuard
) -> None:
    """By its options, or by systemd's files, of which the last counts; its reader may be in a container."""
    write(tmp_path, "etc/systemd/oomd.conf", "[OOM]\n#SwapUsedLimit=50%\nSwapUsedLimit=95%\n")
    write(tmp_path, "etc/systemd/oomd.conf.d/9.conf", "[OOM]\nSwapUsedLimit = 80 %\n")
    process(tmp_path, 40, *arguments)
    found = workloads(tmp_path).read(0.0)
    assert (found.guards, found.sees_all, found.processes) == ((guard,), False, ())
    write(tmp_path, "proc/2/stat", stat_line(2, "kthreadd", flags=0x208040))
    assert parse_stat(2, (tmp_path / "proc/2/stat").read_bytes()) is None
    assert workloads(tmp_path).read(0.0).sees_all is True


def test_a_server_names_what_it_asks_of_memory(tmp_path: Path) -> None:
    """Of its command line nothing else but model and port is kept."""
    options = ("--gpu-memory-utilization=0.85", "--api-key", "secret", "-tp", "2")
    process(tmp_path, 100, "vllm", "serve", "m", *options)
    (found,) = workloads(tmp_path).read(0.0).processes
    assert found.asks == MemoryAsk(0.85, None, 2)
    assert "secret" not in repr(found)
