"""Check that the wheel, built from this tree and installed in an empty environment, works from any directory.

usage: check_wheel.py [--sbom FILE]    with --sbom, only write the installed packages to FILE, as CycloneDX

Checks that the licence of each dependency permits redistribution. Then tries `--version`, `--help` of each
command, every shipped theme, the example configuration and the reader sent over ssh; `make install` into an
empty home and `make uninstall`; and the executable file of `make bundle`, without any site-packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTALL_S = 900
COMMAND_S = 30
SHA256_DIGITS = 64
FREE = (
    "MIT",
    "BSD",
    "Apache",
    "Python Software Foundation",
    "PSF",
    "ISC",
    "Mozilla Public License 2.0",
    "MPL-2.0",
)
"""Accepted licences of dependencies: each part of a licence's name must contain one of these."""


NO_COPY = 77
INSTALLATION = f"""\
copy=$1 package=$2
mount -t tmpfs tmpfs "$copy" && mkdir "$copy/upper" "$copy/work" "$copy/root" &&
  mount -t overlay overlay -o "lowerdir=/,upperdir=$copy/upper,workdir=$copy/work" "$copy/root" &&
  mount -t tmpfs tmpfs "$copy/root/run" && mount -t proc proc "$copy/root/proc" || exit {NO_COPY}
cp "$package" "$copy/root/run/sparktop.deb"
exec chroot "$copy/root" sh -ec '
  export HOME=/run/home PATH=/usr/bin:/usr/sbin:/bin:/sbin
  cd /
  dpkg --force-depends -i /run/sparktop.deb
  sparktop --version
  sparktop doctor > /run/checks || [ $? -eq 1 ] # what it finds wrong here is no fault of the package
  grep "open files" /run/checks
  if command -v systemd-analyze; then
    systemd-analyze verify --man=no /usr/lib/systemd/system/sparktop-*.service
  fi
  dpkg --purge sparktop
  if [ -e /usr/lib/sparktop ] || [ -e /usr/bin/sparktop ]; then echo "files are left"; exit 1; fi
'
"""
"""Installs a .deb in a copy of this system whose changes are in memory, tries it, and removes it again.

/run is empty there, so no service of this machine is touched."""


HELPS = """\
from sparktop.cli import COMMANDS, main
for command in COMMANDS:
    print(f"== {command}", flush=True)
    main([command, "--help"])
"""
"""Prints the help of each command, one after another in one process."""


def run(*command: str | Path, cwd: Path, timeout_s: float = COMMAND_S, home: Path | None = None) -> str:
    """Run a command in the folder `cwd`, with `home` as the user's home; return its standard output.

    Raises:
        SystemExit: the command failed.
    """
    # With PYTHONPATH, files of this tree would hide that the wheel lacks them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if home is not None:
        env = {name: value for name, value in env.items() if not name.startswith("XDG_")} | {
            "HOME": str(home)
        }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        words = " ".join(str(word) for word in command)
        sys.exit(f"wheel: {words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(what: str, *, holds: bool) -> None:
    """Exit with the message `what` unless `holds`."""
    if not holds:
        sys.exit(f"wheel: {what}")


def main() -> None:
    """Build the wheel, install it in a clean environment and check it; with --sbom, only list packages."""
    with tempfile.TemporaryDirectory(prefix="sparktop-wheel-") as folder:
        away = Path(folder)
        # `make install` below builds without what development has.
        build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", away, ROOT)
        run(*build, cwd=away, timeout_s=INSTALL_S)
        (wheel,) = away.glob("*.whl")
        check_contents(wheel)
        run(sys.executable, "-m", "venv", "--without-pip", away / "venv", cwd=away, timeout_s=INSTALL_S)
        bin_folder = away / "venv" / "bin"
        pip = (sys.executable, "-m", "pip", "--python", bin_folder / "python")
        run(*pip, "install", "--quiet", "--no-compile", wheel, cwd=away, timeout_s=INSTALL_S)
        if "--sbom" in sys.argv:
            write_sbom(bin_folder / "python", Path(sys.argv[-1]).resolve(), away)
            return
        check_licences(bin_folder / "python", away)
        check_program(bin_folder, away)
        print(f"{wheel.name}: built, installed in a clean environment and tried")
        check_install(away)
        check_bundle(wheel, away)


def write_sbom(python: Path, path: Path, away: Path) -> None:
    """Write the bill of materials (CycloneDX) of an environment's packages to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tool = Path(sys.executable).parent / "cyclonedx-py"
    run(tool, "environment", "--output-reproducible", "-o", path, python, cwd=away, timeout_s=INSTALL_S)
    print(f"{path}: written")


def check_licences(python: Path, away: Path) -> None:
    """Check that every package of an environment has a licence of `FREE`."""
    tool = Path(sys.executable).parent / "pip-licenses"
    listed = json.loads(run(tool, f"--python={python}", "--from=mixed", "--format=json", cwd=away))
    names = {one["Name"] for one in listed}
    expect(f"licences of {sorted(names)} only", holds={"sparktop", "textual", "aiohttp"} <= names)
    for one in listed:
        parts = re.split(r";| AND ", one["License"])
        free = all(any(word in part for word in FREE) for part in parts)
        expect(f"{one['Name']} has the licence {one['License']!r}", holds=free)


def check_contents(wheel: Path) -> None:
    """Check that the wheel has themes, licence, manual pages and completions, and no package but sparktop."""
    names = zipfile.ZipFile(wheel).namelist()
    for theme in (ROOT / "themes").glob("*.toml"):
        expect(f"theme {theme.name} is missing", holds=f"sparktop/themes/{theme.name}" in names)
    expect("LICENSE is missing", holds=any(name.endswith("/LICENSE") for name in names))
    shared = {name.partition("/share/")[2] for name in names if ".data/data/share/" in name}
    expect(
        "a manual page or a completion is missing",
        holds=shared
        >= {
            "man/man1/sparktop.1",
            "man/man1/sparktop-sweep.1",
            "bash-completion/completions/sparktop",
            "zsh/site-functions/_sparktop",
            "fish/vendor_completions.d/sparktop.fish",
        },
    )
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name and ".data/" not in name}
    expect(f"holds more than the package: {sorted(top)}", holds=top == {"sparktop"})


def check_program(bin_folder: Path, away: Path) -> None:
    """Run the commands of the installed program and check what they print."""
    sparktop = bin_folder / "sparktop"
    version = run(sparktop, "--version", cwd=away).split()
    expect(f"--version says {version}", holds=version[:1] == ["sparktop"] and len(version) > 1)
    expect("--help says no usage", holds="usage: sparktop" in run(sparktop, "--help", cwd=away))
    shown = run(bin_folder / "python", "-c", HELPS, cwd=away)
    commands = re.findall(r"^== (\w+)$", shown, re.MULTILINE)
    expect(f"has only the commands {commands}", holds={"agent", "sweep", "snapshot"} <= set(commands))
    for command in commands:
        expect(f"{command} --help says no usage", holds=f"usage: sparktop {command}" in shown)
    # `themes` reads each theme that it lists.
    listed = {line.split()[0] for line in run(sparktop, "themes", cwd=away).splitlines()}
    shipped = {theme.stem for theme in (ROOT / "themes").glob("*.toml")}
    expect(f"themes lists {sorted(listed)}, not {sorted(shipped)}", holds=listed == shipped != set())
    check_reader(run(sparktop, "agent", "--print-bundle", "--digest", cwd=away))
    example = away / "sparktop.toml"
    example.write_text(run(sparktop, "config", "--default", cwd=away))
    run(sparktop, "config", "--check", example, cwd=away)


def check_install(away: Path) -> None:
    """Check `make install` for a user with an empty home, and that `make uninstall` leaves nothing.

    Packages that `make venv` has downloaded are not downloaded again.
    """
    home = away / "home"
    home.mkdir()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktop" / "wheels"
    if cache.is_dir():
        shutil.copytree(cache, home / ".cache" / "sparktop" / "wheels")
    run(ROOT / "scripts" / "install", cwd=away, timeout_s=INSTALL_S, home=home)
    version = run(home / ".local" / "bin" / "sparktop", "--version", cwd=away, home=home)
    share = home / ".local" / "share"
    pages = {path.stem for path in (share / "man" / "man1").iterdir() if path.is_symlink() and path.exists()}
    expect(f"the manual has only {sorted(pages)}", holds=pages >= {"sparktop", "sparktop-sweep"})
    complete = (
        f"source {share}/bash-completion/completions/sparktop; COMP_WORDS=(sparktop snap); COMP_CWORD=1; "
    )
    words = run("bash", "-c", complete + '_shtab_sparktop; echo "${COMPREPLY[@]}"', cwd=away, home=home)
    expect(f"bash completes snap with {words!r}", holds=words.split() == ["snapshot"])
    run(ROOT / "scripts" / "install", "--remove", cwd=away, home=home)
    left = list(home.glob(".local"))
    expect(f"make uninstall leaves {left}", holds=not left)
    print(f"make install, make uninstall: {version.strip()} came and went")


def check_bundle(wheel: Path, away: Path) -> None:
    """Build the executable file of the wheel and run it without any site-packages."""
    bundle, home = away / "sparktop.pyz", away / "bundle home"
    home.mkdir()
    has_dpkg = shutil.which("dpkg-deb") is not None
    words: list[str | Path] = [ROOT / "scripts" / "bundle.py", "--output", bundle, "--wheel", wheel]
    words += ["--deb"] if has_dpkg else []
    print(run(sys.executable, *words, cwd=away, timeout_s=INSTALL_S).strip())
    shown = run(sys.executable, "-S", "-E", "-s", bundle, "--help", cwd=away, home=home)
    expect("the bundle's --help says no usage", holds="usage: sparktop" in shown)
    listed = run(bundle, "themes", cwd=away, home=home)
    expect("the bundle lists no themes", holds=len(listed.splitlines()) > 1)
    check_reader(run(bundle, "agent", "--print-bundle", "--digest", cwd=away, home=home))
    if has_dpkg:
        check_deb(away)


def check_deb(away: Path) -> None:
    """Unpack the .deb into an empty root and run it there without any site-packages."""
    (package,), root = away.glob("*.deb"), away / "root"
    run("dpkg-deb", "-x", package, root, cwd=away)
    words = (sys.executable, "-S", "-E", "-s", root / "usr/bin/sparktop")
    expect("the .deb lists no themes", holds=len(run(*words, "themes", cwd=away).splitlines()) > 1)
    check_reader(run(*words, "agent", "--print-bundle", "--digest", cwd=away))
    units = {path.stem for path in (root / "usr/lib/systemd/system").glob("*.service")}
    wanted = {"sparktop-agent", "sparktop-export", "sparktop-record", "sparktop-serve"}
    expect(f"the .deb has the units {sorted(units)}", holds=units == wanted)
    starts = {
        line.split()[0]
        for path in root.rglob("*.service")
        for line in path.read_text("utf-8").splitlines()
        if line.startswith("ExecStart=")
    }
    expect(f"its units start {starts}", holds=starts == {"ExecStart=/usr/bin/sparktop"})
    check_installed_deb(package, away)


def check_installed_deb(package: Path, away: Path) -> None:
    """Install the .deb by dpkg in a copy of this system, where that can be made: root can, and may mount."""
    python = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if os.geteuid() or not python.exists():
        print(f"{package.name}: not installed: that needs root and {python}")
        return
    copy = away / "copy"
    copy.mkdir()
    apart = ["unshare", "--mount", "--pid", "--fork"]
    may = (
        shutil.which(apart[0])
        and not subprocess.run([*apart, "true"], capture_output=True, check=False).returncode
    )
    script = INSTALLATION if may else f"exit {NO_COPY}"
    done = subprocess.run(
        [*(apart if may else ()), "sh", "-c", script, "sh", copy, package],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode == NO_COPY:
        print(f"{package.name}: not installed: no copy of this system can be made here {done.stderr.strip()}")
        return
    expect(f"the .deb, installed: {done.stdout}{done.stderr}", holds=done.returncode == 0)
    print(f"{package.name}: installed in a copy of this system, tried and removed")


def check_reader(digest: str) -> None:
    """Check that the reader sent over ssh was assembled: `digest` must be a SHA-256 in hexadecimal."""
    expect(f"the reader sent over ssh has the digest {digest!r}", holds=len(digest.strip()) == SHA256_DIGITS)


if __name__ == "__main__":
    main()
