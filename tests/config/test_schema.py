"""The configuration file: its settings, where it is found, and its errors.

Writing a configuration file from what was found.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from sparktop.commands.config import write_targets
from sparktop.config.checks import MOST
from sparktop.config.from_targets import toml_of_targets
from sparktop.config.schema import SETTINGS, check, load
from sparktop.config.watch import default_toml, needs_of
from sparktop.errors import ConfigError, UsageError
from sparktop.files import find_config
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity
from sparktop.model.router import Deployment, RouterSample, RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.targets import (
    BackendTarget,
    EventSettings,
    NodeTarget,
    NodeThresholds,
    RouterTarget,
    StateThresholds,
    Watch,
)

DATA = Path(__file__).parent.parent / "data" / "configs"
GOOD = sorted((DATA / "good").glob("*.toml"))
BAD = sorted((DATA / "bad").glob("*.toml"))
BACKEND = '[[backends]]\nname = "a"\nurl = "http://127.0.0.1:8000"\n'
SLOW = StateThresholds(ttft_slow_s=2.0, itl_slow_ms=100.0, queue_slow_s=1.0)
"""The limits of latencies in the example: they have no default."""


def written(folder: Path, text: str) -> Path:
    path = folder / "sparktop.toml"
    path.write_text(text, encoding="utf-8")
    return path


def keys_of(table: str) -> list[str]:
    """Return the keys of a table, or of each of a list of tables."""
    kind = (SETTINGS.table or {})[table].kind
    return list((kind.items or kind).table or {})


def error_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(path), path.name)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_file_loads(path: Path) -> None:
    """Every file in good/ loads, and the watch names it as its source."""
    assert load(path).watch({}).source == str(path)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_file_tells_each_error_with_its_line(path: Path) -> None:
    """Every file in bad/ gives exactly the lines in the .txt beside it."""
    assert error_of(path) == path.with_suffix(".txt").read_text(encoding="utf-8").rstrip("\n")


def test_every_key_arrives() -> None:
    """Every key of the file reaches the watch."""
    watch = load(DATA / "good" / "contract.toml").watch({"VLLM_API_KEY": "secret"})
    assert [(one.name, one.via, one.url, one.ssh) for one in watch.nodes] == [
        ("spark-a", "agent", "http://192.168.100.11:9750", None),
        ("spark-b", "ssh", None, "user@192.168.100.12"),
        ("here", "local", None, None),
    ]
    first, second = watch.backends
    assert (first.url, first.engine, first.slots, first.api_key) == (
        "http://192.168.100.11:8000",
        "auto",
        256,
        "secret",
    )
    assert (first.capture_sizes, second.capture_sizes) == ((1, 2, 4, 5, 8, 10, 16), None)
    assert (second.nodes, second.api_key) == (("spark-a", "spark-b"), None)
    assert watch.routers[0].backends == ("spark-a", "spark-b")
    assert watch.routers[0].strategy == "least-busy"
    assert (watch.routers[0].deployments, watch.routers[0].api_key) == ({"spark-1": "spark-a"}, None)
    assert watch.thresholds == StateThresholds(95.0, 16.0, 0.6, 0.4, 20.0)


def test_every_key_of_an_ssh_node_and_an_agent_arrives(tmp_path: Path) -> None:
    """Token, files and command reach the target; files are relative to the configuration, or below home."""
    path = written(
        tmp_path,
        """
        nodes = [
          { name = "a", via = "agent", url = "https://a:9750", token_env = "A_TOKEN", tls_ca = "ca/own.pem" },
          { name = "b", via = "agent", url = "http://b:9750", token_file = "~/b.token" },
          { name = "c", via = "agent", url = "http://c:9750", token_file = "/etc/c.token" },
          { name = "d", via = "ssh", ssh = "d", command = "/opt/spark top/bin/sparktop", ssh_bundle = false },
        ]
        """,
    )
    nodes = load(path).watch({"A_TOKEN": "hunter2", "HOME": "/home/me"}).nodes
    assert [one.token for one in nodes] == ["hunter2", None, None, None]
    assert [one.token_file for one in nodes] == [None, "/home/me/b.token", "/etc/c.token", None]
    assert [one.tls_ca for one in nodes] == [str(tmp_path / "ca" / "own.pem"), None, None, None]
    assert [one.command for one in nodes] == [None, None, None, "/opt/spark top/bin/sparktop"]
    assert [one.ssh_bundle for one in nodes] == [True, True, True, False]
    assert "hunter2" not in repr(nodes)


def test_an_empty_file_gives_the_defaults() -> None:
    """An empty file gives the default settings, including thresholds."""
    watch = load(DATA / "good" / "empty.toml").watch({})
    assert (watch.interval_s, watch.theme, watch.thresholds) == (1.0, "spark-dark", StateThresholds())
    assert watch.node_thresholds == NodeThresholds()
    for table, kind in (("thresholds", StateThresholds), ("alerts", NodeThresholds)):
        assert set(asdict(kind())) == set(keys_of(table))
    assert watch.events == EventSettings() == Watch().events


def test_the_example_is_right_with_all_settings_on(tmp_path: Path) -> None:
    """The example with all its settings uncommented loads, with the default thresholds."""
    text = re.sub(r"(?m)^#(?=\S)", "", default_toml())
    watch = load(written(tmp_path, text)).watch({})
    assert len(watch.backends) == 2
    assert [one.via for one in watch.nodes] == ["local", "agent", "ssh"]
    assert (watch.thresholds, watch.node_thresholds) == (SLOW, NodeThresholds())


def test_the_example_names_every_setting_of_today() -> None:
    """The example has every key of the tables of nodes, backends, routers, thresholds and alerts."""
    tables = ("nodes", "backends", "routers", "thresholds", "alerts")
    wanted = {key for table in tables for key in keys_of(table)}
    keys = set(re.findall(r"(?m)^#?(\w+) = ", default_toml()))
    assert wanted - keys == {"token_file"}  # an alternative to a key that is there


def test_a_missing_variable_is_a_warning(tmp_path: Path) -> None:
    """A variable that is not set is reported with its line and name."""
    config = load(written(tmp_path, BACKEND + 'api_key_env = "SPARK_B_KEY"\n'))
    (line,) = config.warnings({})
    assert line.endswith(
        "sparktop.toml:4: key 'backends[0].api_key_env' names the environment variable SPARK_B_KEY, "
        "which is not set"
    )
    assert config.warnings({"SPARK_B_KEY": "x"}) == []
    assert config.watch({}).backends[0].api_key is None


def test_the_files_that_a_service_needs_are_named_as_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative to the file, or to the own home; another user's home is a folder of that name."""
    monkeypatch.setenv("HOME", "/home/me")
    node = '[[nodes]]\nname = "{0}"\nvia = "agent"\nurl = "http://{0}:9750"\ntls_ca = "{0}"\n'
    file = written(tmp_path, "".join(map(node.format, ("~/a", "~nobody-here/b", "c"))))
    wanted = (Path("/home/me/a"), tmp_path / "~nobody-here/b", tmp_path / "c")
    assert needs_of(file).files == (file, *wanted)


def test_a_server_that_is_listed_twice_is_a_warning(tmp_path: Path) -> None:
    """Its figures would count twice, under whatever names; routers and backends may share an address.

    Of a router that is not watched no figure counts.
    """
    text = "".join(
        f'[[{kind}]]\nname = "{name}"\nurl = "http://127.0.0.1:8000{path}"\n'
        for kind, name, path in (("backends", "a", ""), ("backends", "b", "/"), ("routers", "c", ""))
    )
    text += '[[routers]]\nname = "d"\nurl = "http://127.0.0.1:8000"\nwatched = false\n'
    (line,) = load(written(tmp_path, text)).warnings({})
    assert line.endswith(":6: key 'backends[1].url' is that of backends[0], too: its figures count twice")


@pytest.mark.parametrize("key", ["hf_abcdefghijklmnop", "A1B2C3D4E5F60718293A4B5C6D7E8F90", "sk_Ab12"])
def test_a_key_in_the_place_of_its_variable_is_not_repeated(tmp_path: Path, key: str) -> None:
    """A text that may be a key itself (lower case, or one long word) is not repeated in the warning."""
    config = load(written(tmp_path, BACKEND + f'api_key_env = "{key}"\n'))
    (line,) = config.warnings({})
    assert line.endswith("key 'backends[0].api_key_env' names an environment variable, which is not set")


def test_the_usual_places_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder's file comes before the user's own; an empty variable is ignored."""
    monkeypatch.chdir(tmp_path)
    env = {"HOME": str(tmp_path / "home"), "SPARKTOP_CONFIG": ""}
    assert find_config(None, env) is None
    own = tmp_path / "home" / ".config" / "sparktop" / "sparktop.toml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_config(None, env) == own
    elsewhere = tmp_path / "xdg" / "sparktop" / "sparktop.toml"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.touch()
    assert find_config(None, {**env, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}) == elsewhere
    assert find_config(None, {**env, "XDG_CONFIG_HOME": "relative"}) == own
    written(tmp_path, "")
    assert find_config(None, env) == Path("sparktop.toml")


def test_an_endless_file_is_not_read_to_its_end() -> None:
    """A device without an end is refused once the largest size is read."""
    assert error_of(Path("/dev/zero")) == "zero: is larger than 1 MiB: no configuration file"


def test_thousands_of_errors_are_cut(tmp_path: Path) -> None:
    """Of thousands of errors the first are shown and the others counted."""
    text = "".join(f"wrong{number} = 1\n" for number in range(MOST + 50))
    lines = error_of(written(tmp_path, text)).splitlines()
    assert len(lines) == MOST + 1
    assert lines[-1] == "sparktop.toml: 50 more errors"


LOCKED = Failure(FailureKind.UNAUTHORIZED, "HTTP 401\x1b[2J", 1.0)
NODES = (
    NodeTarget("here"),
    NodeTarget("spark-b", via="agent", url="http://10.0.0.2:9750"),
    NodeTarget("spark-c", via="ssh", ssh="me@spark-c"),
)
BACKENDS = (
    BackendTarget("a", "http://127.0.0.1:8000"),
    BackendTarget('b "quoted" \\', "http://10.0.0.2:8000"),
    BackendTarget("far", "http://10.0.0.9:8000", slots=16),
)
ROUTERS = (RouterTarget("proxy", "http://127.0.0.1:4000"), RouterTarget("closed", "http://127.0.0.1:4001"))
SNAPSHOT = Snapshot(
    datetime(2026, 3, 4, tzinfo=UTC),
    1.0,
    1.0,
    2.0,
    nodes=(
        NodeView("here", "local", identity=NodeIdentity(os="DGX OS 7")),
        NodeView("spark-b", "agent"),
        NodeView("spark-c", "ssh"),
    ),
    backends=(
        BackendView(
            "a",
            BACKENDS[0].url,
            "",
            engine="vllm",
            version="0.32.0",
            model="m\nurl = 1",
            nodes=("here",),
            slots=8,
        ),
        BackendView(BACKENDS[1].name, BACKENDS[1].url, "", nodes=("spark-b",)),
        BackendView("far", BACKENDS[2].url, "", failure=LOCKED),
    ),
    routers=(
        RouterView(
            "proxy",
            ROUTERS[0].url,
            sample=RouterSample(
                0.0,
                "litellm",
                deployments=(
                    Deployment("one", "http://127.0.0.1:8000/v1"),
                    Deployment("three", "https://example.org/v1\n[[nodes]]"),
                ),
            ),
            strategy="least-busy",
            strategy_read=True,
            deployments={"one": "a", "two": BACKENDS[1].name, "three": None},
        ),
        RouterView("closed", ROUTERS[1].url, failure=LOCKED),
    ),
)


def test_what_was_found_comes_back_from_the_file() -> None:
    """Nodes, servers with their nodes, and routers with their deployments are read back as they were."""
    text = toml_of_targets((*NODES, *BACKENDS, *ROUTERS), SNAPSHOT)
    watch = check(Path("x.toml"), text).watch({})
    assert watch.nodes == NODES
    assert [(one.name, one.url, one.engine, one.nodes, one.slots) for one in watch.backends] == [
        ("a", "http://127.0.0.1:8000", "vllm", ("here",), None),
        (BACKENDS[1].name, "http://10.0.0.2:8000", "auto", ("spark-b",), None),
        ("far", "http://10.0.0.9:8000", "auto", (), 16),
    ]
    assert [(one.name, one.backends, dict(one.deployments)) for one in watch.routers] == [
        ("proxy", ("a", BACKENDS[1].name), {"one": "a", "two": BACKENDS[1].name}),
        ("closed", (), {}),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "# DGX OS 7",
        "# vllm 0.32.0, m url = 1",
        "# It did not answer: HTTP 401 [2J",
        "# The machine 10.0.0.9 is not watched. Over ssh nothing has to be installed there.",
        '#ssh = "10.0.0.9"',
        "# Not watched: https://example.org/v1 [[nodes]]",
    ],
)
def test_comments_say_what_is_known_and_what_to_fill_in(line: str) -> None:
    """Comments have known facts and settings to fill in; text from servers is cleaned."""
    assert line in toml_of_targets((*NODES, *BACKENDS, *ROUTERS), SNAPSHOT).splitlines()


def test_slots_that_nobody_reports_are_not_guessed() -> None:
    """Unknown slots are written as "?", which is invalid if uncommented: a guess would pass for a fact."""
    view = BackendView("a", BACKENDS[0].url, "", engine="vllm")
    text = toml_of_targets(BACKENDS[:1], replace(SNAPSHOT, backends=(view,)))
    assert "#slots = ?" in text.splitlines()
    with pytest.raises(ConfigError, match=r"^x.toml"):
        check(Path("x.toml"), text.replace("#slots", "slots"))
    read = toml_of_targets(BACKENDS[:1], replace(SNAPSHOT, backends=(replace(view, slots=8),)))
    assert check(Path("x.toml"), read.replace("#slots", "slots")).watch({}).backends[0].slots == 8


def test_a_file_is_not_overwritten_and_needs_a_name(tmp_path: Path) -> None:
    """An existing file and a missing name are refused before anything is watched."""
    path = tmp_path / "mine.toml"
    path.write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine.toml exists: edit or remove it, or name another file \("):
        write_targets(Watch(), str(path), 0.1)
    with pytest.raises(UsageError, match=r"takes FILE.toml, not '10.0.0.1:8000': TARGETs stand before it$"):
        write_targets(Watch(), "10.0.0.1:8000", 0.1)
