"""The containers of processes."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from sparktop.hardware.processes import ContainerReader, ask_names, container_id, read_names
from tests.hardware.conftest import write

ID = "0123456789abcdef" * 4
OTHER = "f" * 64


@pytest.mark.parametrize(
    "line",
    [
        f"0::/system.slice/docker-{ID}.scope",
        f"0::/docker/{ID}",
        f"0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{ID}.scope",
        f"0::/machine.slice/libpod-{ID}.scope",
        f"0::/machine.slice/libpod-{ID}.scope/container",
        f"0::/kubepods.slice/kubepods-burstable-pod0a_b.slice/cri-containerd-{ID}.scope",
        f"0::/kubepods.slice/crio-{ID}.scope",
        f"0::/default/{ID}",
        f"9:name=systemd:/\n4:memory:/docker/{ID}\n0::/",
        f"0::/docker/{OTHER}/docker/{ID}",
    ],
)
def test_each_form_of_a_cgroup_names_its_container(line: str) -> None:
    """Container ids are found for Docker, Podman, Kubernetes, containerd, cgroup v1 and nested containers."""
    assert container_id(line.encode()) == ID


def http(body: object, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}".encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage",
        http([], "500 x"),
        http({"a": 1}),
        http([1, {"Id": 2}, {"Id": ID, "Names": []}]),
        b"HTTP/1.0 200 OK\r\n\r\n[" * 9,
    ],
)
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
        assert reader._thread is not None
        reader._thread.join(10)
        assert reader.find(7, 1) == ("0123456789ab", "engine")
    assert ask_names(str(path)) == {}
