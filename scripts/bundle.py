"""Build sparktop and its dependencies as one executable file, from wheels only, for this machine or others.

`--deb` also builds a package for Ubuntu 24.04 (Python 3.12) or another Debian: the program below
/usr/lib/sparktop, manual pages, completions, and the systemd units of agent, export, record and serve, none
of them enabled.

The file needs only Python, in the version that it was built for, so it also runs on a machine without a
network. `--check` only shows that each package has a wheel.

Versions and hashes are those of locks/run.txt. manylinux2014 wheels run on every Linux with glibc 2.17 or
newer, which all systems of a Spark have; a package with newer tags only would need a further platform here.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = ("x86_64", "aarch64")
CHECKED = ("3.11", "3.12", "3.13", "3.14")
TIMEOUT_S = 240
UNPACKED = "~/.cache/sparktop"
"""Folder into which the file unpacks itself when it first runs."""
PREAMBLE = """\
import os, shutil, sys
wanted = ({major}, {minor})
if sys.version_info[:2] != wanted or sys.implementation.name != "cpython":
    name = "python{major}.{minor}"
    other = shutil.which(name)
    if other is None or os.path.realpath(other) == os.path.realpath(sys.executable):
        sys.exit(f"sparktop: this file was built for {{name}}, which is not on the PATH; "
                 "build one for Python %d.%d: make bundle FOR=%d.%d" % (sys.version_info[:2] * 2))
    os.execv(other, [other, *sys.argv])
here = os.uname().machine
if here != "{arch}":
    sys.exit("sparktop: this file was built for {arch}; build one for this machine: make bundle ARCH=" + here)
"""

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
SERVICES = ("agent", "export", "record", "serve")
UNIT = "sparktop-{}.service"
LIBRARY = "usr/lib/sparktop"
PROGRAM = """\
#!/usr/bin/python{version}
import os
import sys

library = __file__.rpartition("/bin/")[0] + "/lib/sparktop"
sys.path.insert(0, library)
# For the load generator and the demo's servers, which are processes of their own.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (library, os.environ.get("PYTHONPATH"))))
from sparktop.cli import program

sys.exit(program())
"""
CONTROL = """\
Package: sparktop
Version: {number}
Architecture: {arch}
Maintainer: The sparktop authors <none@example.invalid>
Depends: python{version}
Recommends: openssh-client
Section: admin
Priority: optional
Installed-Size: {kib}
Description: monitor for LLM servers and the machines they run on
 Shows engines (vLLM and others), routers and NVIDIA GPUs live in a terminal,
 measures them under load, records and reports.
"""
AFTER_INSTALLATION = """\
#!/bin/sh
set -e
python{version} -m compileall -q /{library} || true
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  systemctl try-restart {units} || true
fi
"""
BEFORE_REMOVAL = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl disable --now --quiet {units} || true
fi
find /{library} -name __pycache__ -prune -exec rm -rf {{}} +
"""


def markers(arch: str, version: str) -> dict[str, str]:
    """Return the marker variables of CPython `version` on a Linux machine of this architecture."""
    return {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": arch,
        "python_version": version,
        "python_full_version": f"{version}.0",
        "implementation_version": f"{version}.0",
    }


def pip(arch: str, version: str, *words: str | Path) -> str:
    """Run `pip install` for a target; return its standard output.

    Raises:
        SystemExit: pip failed, mostly because a package has no wheel.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", version]
    command += [f"--platform=manylinux2014_{arch}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"{arch}, Python {version}: not everything has a wheel\n{done.stderr}")
    return done.stdout


def pinned(arch: str, version: str) -> list[str]:
    """Return the packages of locks/run.txt that the target needs, as lines with their hashes."""
    lock = (ROOT / "locks/run.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = []
    for line in lock.splitlines():
        need, _, hashes = line.partition("--hash")
        package = Requirement(need)
        if package.marker is None or package.marker.evaluate(markers(arch, version)):
            # Without its marker, which pip would evaluate for the machine it runs on.
            lines.append(f"{package.name}{package.specifier} --hash{hashes}")
    return lines


def fetch(arch: str, version: str, site: Path, *words: str | Path) -> int:
    """Install the packages of a target into `site`; return how many there are."""
    lines = pinned(arch, version)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as lock:
        lock.write("\n".join(lines))
        lock.flush()
        wanted = ("--require-hashes", "-r", lock.name)
        pip(arch, version, "--no-deps", "--no-compile", "--target", site, *wanted, *words)
    return len(lines)


def run(*command: str | Path) -> None:
    """Run a build step; exit with its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"bundle: {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def build(arch: str, version: str, output: Path, *, with_deb: bool, wheel: Path | None) -> None:
    """Build the executable file for a target, and `with_deb` the package beside it; print their sizes.

    They hold the program of `wheel`; None: of one that is built from this tree.
    """
    major, minor = version.split(".")
    with tempfile.TemporaryDirectory(prefix="sparktop-bundle-") as folder:
        away = Path(folder)
        if wheel is None:
            run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", away, ROOT)
            (wheel,) = away.glob("*.whl")
        site = away / "site"
        packages = fetch(arch, version, site)
        pip(arch, version, "--no-deps", "--no-compile", "--target", site, "--upgrade", wheel)
        preamble = away / "preamble.py"
        preamble.write_text(PREAMBLE.format(major=major, minor=minor, arch=arch))
        output.parent.mkdir(parents=True, exist_ok=True)
        shiv = Path(sys.executable).with_name("shiv")
        words: list[str | Path] = [
            "--site-packages",
            site,
            "--entry-point",
            "sparktop.cli:program",
            "--preamble",
            preamble,
        ]
        words += ["--python", "/usr/bin/env python3", "--root", UNPACKED]
        run(shiv, *words, "--compressed", "--reproducible", "--extend-pythonpath", "--output-file", output)
        made = [output]
        if with_deb:
            number = wheel.name.split("-")[1]
            made.append(build_deb(site, number, arch, version, output.parent))
    for path in made:
        size_mib = path.stat().st_size / 2**20
        print(f"{path}: {size_mib:.1f} MiB, for Python {version} on {arch}, {packages + 1} packages inside")


def build_deb(site: Path, number: str, arch: str, version: str, folder: Path) -> Path:
    """Build the .deb of release `number` from `site`, the folder of all packages; return its path."""
    with tempfile.TemporaryDirectory(prefix="sparktop-deb-") as away:
        tree = Path(away)
        shutil.copytree(site, tree / LIBRARY, ignore=shutil.ignore_patterns("bin", "share"))
        run(sys.executable, ROOT / "scripts" / "manuals.py", tree / "usr")
        zsh = tree / "usr/share/zsh"
        (zsh / "site-functions").rename(zsh / "vendor-completions")  # Debian's place for them
        write(tree / "usr/bin/sparktop", PROGRAM.format(version=version), mode=0o755)
        write(tree / "usr/share/doc/sparktop/copyright", (ROOT / "LICENSE").read_text("utf-8"))
        for service in SERVICES:
            write(tree / "usr/lib/systemd/system" / UNIT.format(service), unit(service))
        kib = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
        facts = {"number": number, "arch": DEBIAN[arch], "version": version, "kib": kib}
        write(tree / "DEBIAN/control", CONTROL.format(**facts))
        names = {"version": version, "library": LIBRARY, "units": " ".join(map(UNIT.format, SERVICES))}
        write(tree / "DEBIAN/postinst", AFTER_INSTALLATION.format(**names), mode=0o755)
        write(tree / "DEBIAN/prerm", BEFORE_REMOVAL.format(**names), mode=0o755)
        path = folder / f"sparktop_{number}_{DEBIAN[arch]}.deb"
        run("chmod", "-R", "go+rX,go-w", tree)
        run("dpkg-deb", "-Zgzip", "--root-owner-group", "--build", tree, path)
    return path


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file of the package."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)


def unit(service: str) -> str:
    """Return the systemd unit that the command itself prints where the package has it."""
    started = f"import sys; sys.argv = ['/usr/bin/sparktop', {service!r}, '--systemd-unit']"
    words = (sys.executable, "-c", f"{started}; from sparktop.cli import program; program()")
    env = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    lines = done.stdout.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# sparktop "))  # how it is printed


def main() -> None:
    """Build the file, or check that it can be built for each version of Python."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default=platform.machine())
    parser.add_argument(
        "--python", metavar="X.Y", help=f"of the target (default: {here} here, 3.12 elsewhere)"
    )
    parser.add_argument("--output", type=Path, help="default: dist/sparktop-ARCH.pyz")
    parser.add_argument("--deb", action="store_true", help="also build a .deb beside it (needs dpkg-deb)")
    parser.add_argument("--wheel", type=Path, help="sparktop's own (default: built from this tree)")
    parser.add_argument("--check", action="store_true", help="only show that every dependency has a wheel")
    arguments = parser.parse_args()
    if arguments.check:
        for version in CHECKED:
            with tempfile.TemporaryDirectory() as nowhere:
                packages = fetch(arguments.arch, version, Path(nowhere), "--dry-run")
            print(f"{arguments.arch}, Python {version}: {packages} packages, all from wheels")
        return
    version = arguments.python or (here if arguments.arch == platform.machine() else "3.12")
    output = arguments.output or ROOT / "dist" / f"sparktop-{arguments.arch}.pyz"
    build(arguments.arch, version, output, with_deb=arguments.deb, wheel=arguments.wheel)


if __name__ == "__main__":
    main()
