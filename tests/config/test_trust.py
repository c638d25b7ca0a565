"""A configuration file that was only found in the current folder: what it may do, and how it is approved."""

from __future__ import annotations

import grp
import json
import os
import pwd
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.cli import main
from sparktop.commands.arguments import configured_watch
from sparktop.commands.choice import choose
from sparktop.config import schema, trust
from sparktop.config.schema import SETTINGS, Reach, ValueKind, check
from sparktop.errors import ConfigError
from sparktop.model.targets import Watch
from sparktop.store import Store
from sparktop.sweep.plan.watched_targets import watched_targets
from tests.known import known

URLS = """
interval_s = 2
theme = "spark-light"
[[backends]]
name = "b"
url = "http://192.0.2.1:8000"
[[nodes]]
name = "n"
via = "agent"
url = "http://192.0.2.1:9750"
[[routers]]
name = "r"
url = "http://192.0.2.1:4000"
backends = ["b"]
[[prometheus]]
url = "http://192.0.2.1:9090"
selector = 'job="vllm"'
[view]
graphs = "blocks"
[alerts]
slow_clock_mhz = 900
[events]
bell = true
"""
"""All that a found file may set: addresses and looks."""
BACKEND = '[[backends]]\nname = "x"\nurl = "http://192.0.2.1:1"\n'
PROMETHEUS = '[[prometheus]]\nurl = "http://192.0.2.1:1"\n'
NODE = '[[nodes]]\nname = "x"\n'
POWERS = {
    "backend key": f'{BACKEND}api_key_env = "HOME"',
    "router key": f'{BACKEND.replace("backends", "routers")}api_key_env = "HOME"',
    "node token": f'{NODE}via = "agent"\nurl = "http://192.0.2.1:1"\ntoken_env = "HOME"',
    "node token file": f'{NODE}via = "agent"\nurl = "http://192.0.2.1:1"\ntoken_file = "/etc/passwd"',
    "node certificate": f'{NODE}via = "agent"\nurl = "https://192.0.2.1:1"\ntls_ca = "ca.pem"',
    "ssh": f'{NODE}via = "ssh"\nssh = "host"',
    "ssh command": f'{NODE}via = "ssh"\nssh = "host"\ncommand = "./x"',
    "bearer": f'{PROMETHEUS}bearer_env = "HOME"',
    "bearer file": f'{PROMETHEUS}bearer_file = "/etc/passwd"',
    "password": f'{PROMETHEUS}basic_user = "u"\npassword_env = "HOME"',
    "prometheus certificate": f'{PROMETHEUS}tls_cert = "a.pem"\ntls_key = "b.pem"',
    "headers": f'{PROMETHEUS}headers = {{ Metadata-Flavor = "Google" }}',
    "hook": '[events]\nhook = ["./x", "y"]',
    "webhook": '[events]\nwebhook = "http://192.0.2.1:1/x"',
    "webhook token": '[events]\nwebhook = "http://192.0.2.1:1/x"\nwebhook_token_env = "HOME"',
    "target files": 'target_files = ["/home/*/x.json"]',
    "sparkrun": "sparkrun = true",
    "preset": '[[sweeps]]\nname = "quick"\nconcurrency = [4096]',
    "trace": '[[sweeps]]\nname = "quick"\ntrace = "/etc/passwd"',
    "guard off": "[guard]\nmin_headroom_gib = 0",
    "keys": '[keys]\nsweep = "q"\nquit = "s"',
    "ranks": "[diagnosis]\nask_ranks = true",
    "recorder": "[recorder]\nflight_mib = 65536",
}


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment with a home of its own; the current folder is another one, without a terminal."""
    (tmp_path / "home").mkdir()
    here = tmp_path / "here"
    here.mkdir(mode=0o755)
    monkeypatch.chdir(here)
    monkeypatch.delenv("SPARKTOP_CONFIG", raising=False)
    found = {"HOME": str(tmp_path / "home")}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", found["HOME"])
    return found


def write(text: str, path: str = "sparktop.toml") -> Path:
    made = Path(path)
    made.write_text(text, encoding="utf-8")
    made.chmod(0o644)
    return made


def settings(kind: ValueKind, name: str = "", *, marked: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it has a mark of its own or of its table) of each setting."""
    for key, setting in ((kind.items or kind).table or {}).items():
        own = marked or setting.reach is not Reach.UNKNOWN
        inner = list(settings(setting.kind, f"{name}.{key}", marked=own))
        yield from inner or [(f"{name}.{key}", own)]


def test_every_setting_says_what_it_can_do() -> None:
    """Each setting has a mark; a new one without a mark fails here, and is not harmless."""
    found = list(settings(SETTINGS))
    assert len(found) > 80
    assert [name for name, own in found if not own] == []


def test_a_setting_without_a_mark_is_not_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody has classified needs an approval."""
    table = dict(SETTINGS.table or {})
    table["theme"] = replace(table["theme"], reach=Reach.UNKNOWN)
    monkeypatch.setattr(schema, "SETTINGS", replace(SETTINGS, table=table))
    (setting,) = check(Path("x.toml"), 'theme = "spark-light"').sensitive_settings()
    assert setting == "line 1: theme = spark-light: does what a found file may not do"


def test_addresses_and_looks_need_nothing(env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A found file with URLs and looks is used, but its servers are no configuration for a sweep."""
    write(URLS)
    watch = known(configured_watch(None, env))
    assert (watch.interval_s, watch.backends[0].url, watch.is_trusted) == (2, "http://192.0.2.1:8000", False)
    assert capsys.readouterr().err == ""
    assert not any(one.known for one in watched_targets(watch, Store(watch).snapshot()))
    named = known(configured_watch("sparktop.toml", env))
    assert all(one.known for one in watched_targets(named, Store(named).snapshot()))


@pytest.mark.parametrize("text", POWERS.values(), ids=POWERS)
def test_what_is_more_needs_an_approval(text: str, env: dict[str, str]) -> None:
    """Any other setting stops a found file, is named with its line, and holds once the file is approved."""
    path = write(text)
    for _ in range(2):  # the second time from the cache
        with pytest.raises(ConfigError, match=r"found in the current folder and not used(.|\n)*line \d+: "):
            configured_watch(None, env)
    for name in ("sparktop.toml", str(path.absolute())):
        named = known(configured_watch(name, env))
        assert named.is_trusted
    assert main(["config", "--trust"]) == 0
    approved = known(configured_watch(None, env))
    assert approved.is_trusted
    write(f"{text}\n# changed")
    with pytest.raises(ConfigError):
        configured_watch(None, env)


def test_an_approval_is_of_one_path_and_content(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file in another folder is another file."""
    write(POWERS["hook"])
    assert main(["config", "--trust"]) == 0
    (tmp_path / "other").mkdir(mode=0o755)
    monkeypatch.chdir(tmp_path / "other")
    write(POWERS["hook"])
    with pytest.raises(ConfigError):
        configured_watch(None, env)


def test_an_approval_that_others_could_have_written_is_none(env: dict[str, str]) -> None:
    """The store itself is believed only if its user alone can write it."""
    write(POWERS["hook"])
    assert main(["config", "--trust"]) == 0
    store = known(trust.Approvals(env).path)
    assert json.loads(store.read_text(encoding="utf-8"))["trusted"]
    store.chmod(0o666)
    with pytest.raises(ConfigError):
        configured_watch(None, env)


FOUND, HERE, OTHER_USER = Path("sparktop.toml"), Path(), 12345


def linked(to: Path, owner: int = -1) -> None:
    """Put a link in place of the file, which is moved to `to`."""
    FOUND.rename(to)
    FOUND.symlink_to(to.absolute())
    os.chown(FOUND, owner, -1, follow_symlinks=False)


def of_group(path: Path, mode: int) -> None:
    os.chown(path, -1, 12)
    path.chmod(mode)


def into_open_folder() -> None:
    there = Path("../there")
    there.mkdir()
    there.chmod(0o777)
    linked(there / "x.toml")


STRANGE: dict[str, Callable[[], None]] = {
    "in a sticky folder": lambda: HERE.chmod(0o1777),
    "in an open folder": lambda: HERE.chmod(0o777),
    "below an open folder": lambda: Path("..").chmod(0o777),
    "open to all": lambda: FOUND.chmod(0o666),
    "link into an open folder": into_open_folder,
}
STRANGE_OF_OTHERS: dict[str, Callable[[], None]] = {
    "in a setgid folder of others": lambda: of_group(HERE, 0o2775),
    "of a group": lambda: of_group(FOUND, 0o664),
    "of another user": lambda: os.chown(FOUND, OTHER_USER, -1),
    "folder of another user": lambda: os.chown(HERE, OTHER_USER, -1),
    "link of another user": lambda: linked(Path("real.toml"), OTHER_USER),
}
"""These take root to make."""


@pytest.mark.parametrize("name", [*STRANGE, *STRANGE_OF_OTHERS])
def test_a_file_that_others_could_have_written_is_refused(name: str, env: dict[str, str]) -> None:
    """Whoever could have written file, link or folder: not used, even if harmless, nor approved."""
    if name in STRANGE_OF_OTHERS and os.geteuid() != 0:
        pytest.skip("another user's file takes root to make")
    write(URLS)
    (STRANGE | STRANGE_OF_OTHERS)[name]()
    with pytest.raises(ConfigError, match=r"sparktop\.toml: not used where it is found: it"):
        configured_watch(None, env)
    assert main(["config", "--trust"]) == 2
    named = known(configured_watch("sparktop.toml", env))
    assert named.is_trusted


def test_a_group_of_the_user_alone_is_the_user(env: dict[str, str]) -> None:
    """Files that the user's own group can write are usual where each user has one."""
    write(URLS).chmod(0o664)
    assert (configured_watch(None, env) if _has_own_group() else Watch()) is not None


def test_a_group_that_is_the_first_of_another_user_is_not_ones_own(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system does not list such a user among the group's members."""
    file = write(URLS)
    file.chmod(0o664)
    if not _has_own_group():
        pytest.skip("this user has no group of that name")
    own = pwd.getpwuid(os.geteuid())
    other = ("other", "x", own.pw_uid + 1, file.stat().st_gid, "", "/", "/bin/sh")
    monkeypatch.setattr("pwd.getpwall", lambda: [own, pwd.struct_passwd(other)])
    with pytest.raises(ConfigError, match="can be written by a group"):
        configured_watch(None, env)


def _has_own_group() -> bool:
    name = grp.getgrgid(Path("sparktop.toml").stat().st_gid).gr_name
    return name == pwd.getpwuid(os.geteuid()).pw_name


def test_a_pipe_is_refused_unread(env: dict[str, str]) -> None:
    """A pipe in place of the file is not even read."""
    os.mkfifo("sparktop.toml")
    with pytest.raises(ConfigError, match="not used where it is found: it is not a regular file"):
        configured_watch(None, env)


@pytest.mark.parametrize("go_there", [False, True])
def test_the_own_configuration_folder_is_trusted(
    go_there: bool,  # noqa: FBT001 - a parameter of the test
    env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file in ~/.config/sparktop may do anything, also where it is the current folder, by a link."""
    own = Path(env["HOME"], ".config/sparktop")
    own.mkdir(parents=True)
    write(POWERS["hook"], str(own / "sparktop.toml"))
    if go_there:
        Path("link").symlink_to(own)
        monkeypatch.chdir("link")
    watch = known(configured_watch(None, env))
    assert (watch.is_trusted, bool(watch.events.hook)) == (True, True)


def test_the_question_names_what_would_happen(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the user is asked once, with programs first and without hidden letters; no is no."""
    write(f"{POWERS['backend key']}\n{POWERS['hook']}".replace("./x", "./\u0430y"))
    asked: list[str] = []
    answers = [False, True]

    def ask(question: str) -> bool:
        asked.append(question)
        return answers.pop(0)

    monkeypatch.setattr(trust, "_find_asker", lambda: ask)
    with pytest.raises(ConfigError, match="not used; skip it"):
        configured_watch(None, env)
    for _ in range(2):
        watch = known(configured_watch(None, env))
        assert watch.is_trusted
    assert len(asked) == 2
    first, program, secret = asked[0].splitlines()
    assert first.startswith("sparktop.toml was found in this folder: as others may have written it")
    assert "events.hook" in program
    assert "runs a program" in program
    assert "\\u0430" in program
    assert "backends[0].api_key_env = the environment variable HOME: sends a secret" in secret


def test_the_key_of_the_demo_is_no_secret(env: dict[str, str]) -> None:
    """The file that `sparktop demo --serve` prints asks for the loads of its keys alone."""
    write(POWERS["backend key"].replace("HOME", "SPARKTOP_DEMO_KEY"))
    watch = known(configured_watch(None, env))
    assert watch.backends


def test_many_sensitive_settings_are_listed_in_short(env: dict[str, str]) -> None:
    """A file with hundreds of settings that need an approval fills no screen; the worst stand first."""
    write(
        "\n".join(
            f'[[backends]]\nname = "b{n}"\nurl = "http://192.0.2.1:1"\napi_key_env = "HOME"'
            for n in range(300)
        )
        + '\n[events]\nhook = ["./x"]\n'
    )
    with pytest.raises(ConfigError) as error:
        configured_watch(None, env)
    lines = str(error.value).splitlines()
    assert len(lines) == 15
    assert "hook" in lines[1]
    assert lines[-2] == "  and 289 more"


def test_commands_say_it(env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """`config --check` reports it, and approves nothing; a command goes on without it where it has a target.

    Else it ends with code 2, after what is wrong with its arguments.
    """
    write(f"{POWERS['bearer file']}\n{POWERS['hook']}")
    assert main(["config", "--check"]) == 0
    said = capsys.readouterr()
    assert "events.hook = ./x y: runs a program" in said.err
    assert "valid" in said.out
    with pytest.raises(ConfigError):
        configured_watch(None, env)
    assert main(["snapshot", "--seconds", "1"]) == 2
    assert "sparktop config --trust" in capsys.readouterr().err
    assert main(["snapshot", "--api-key-env", "NO_KEY"]) == 2
    assert capsys.readouterr().err.startswith("sparktop: --api-key-env NAME needs a TARGET")
    skipped = "sparktop.toml: found in the current folder and not used: others may have written"
    watch = choose(Namespace(config=None, targets=["192.0.2.1:8000"]), env)
    assert ([one.url for one in watch.backends], watch.events.hook) == (["http://192.0.2.1:8000"], ())
    assert main(["sweep", "http://192.0.2.1:1", "--preset", "nope"]) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert (skipped in first, skipped in second, "nope" in third) == (True, True, True)
