"""Build sparktop and its dependencies as one executable file, from wheels only, for this machine or others.

The file needs only Python, in the version that it was built for, so it also runs on a machine without a
network. `--check` only resolves the dependencies, which shows that each of them has a wheel.

manylinux2014 wheels run on every Linux with glibc 2.17 or newer, which all systems of a Spark have; a
dependency with newer tags only would need a further platform here. pip evaluates environment markers for the
machine it runs on, not for the requested platform. So the script evaluates each package's requirements again
with the markers of the target, and resolves once more with the requirements that pip left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def resolve(arch: str, version: str) -> list[dict[str, Any]]:
    """Return the packages to install on the target, as entries of pip's report."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [Requirement(line) for line in project["dependencies"]]
    requirements = [
        f"{need.name}{need.specifier}"
        for need in needs
        if need.marker is None or need.marker.evaluate(markers(arch, version))
    ]
    with tempfile.TemporaryDirectory() as nowhere:
        while True:
            words = ("--dry-run", "--ignore-installed", "--report", "-", "--target", nowhere)
            installs: list[dict[str, Any]] = json.loads(pip(arch, version, *words, *requirements))["install"]
            missing = passed_over(installs, arch, version)
            if not missing:
                return installs
            requirements += sorted(missing)


def passed_over(installs: list[dict[str, Any]], arch: str, version: str) -> set[str]:
    """Return the requirements that apply on the target, but that pip left out as not needed here."""
    present = {canonicalize_name(install["metadata"]["name"]) for install in installs}
    missing = set()
    for install in installs:
        extras = install.get("requested_extras") or [""]
        for line in install["metadata"].get("requires_dist", []):
            need = Requirement(line)
            holds = need.marker is None or any(
                need.marker.evaluate({**markers(arch, version), "extra": extra}) for extra in extras
            )
            if holds and canonicalize_name(need.name) not in present:
                need.marker = None
                missing.add(str(need))
    return missing


def run(*command: str | Path) -> None:
    """Run a build step; exit with its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"bundle: {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def build(arch: str, version: str, output: Path) -> None:
    """Build the executable file for a target, write it to `output` and print its size."""
    pinned = [f"{one['metadata']['name']}=={one['metadata']['version']}" for one in resolve(arch, version)]
    major, minor = version.split(".")
    with tempfile.TemporaryDirectory(prefix="sparktop-bundle-") as folder:
        away = Path(folder)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", away, ROOT)
        (wheel,) = away.glob("*.whl")
        site = away / "site"
        pip(arch, version, "--no-deps", "--no-compile", "--target", site, wheel, *pinned)
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
    size_mib = output.stat().st_size / 2**20
    print(f"{output}: {size_mib:.1f} MiB, for Python {version} on {arch}, {len(pinned)} packages inside")


def main() -> None:
    """Build the file, or check that it can be built for each version of Python."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default=platform.machine())
    parser.add_argument(
        "--python", metavar="X.Y", help=f"of the target (default: {here} here, 3.12 elsewhere)"
    )
    parser.add_argument("--output", type=Path, help="default: dist/sparktop-ARCH.pyz")
    parser.add_argument("--check", action="store_true", help="only show that every dependency has a wheel")
    arguments = parser.parse_args()
    if arguments.check:
        for version in CHECKED:
            installs = resolve(arguments.arch, version)
            print(f"{arguments.arch}, Python {version}: {len(installs)} packages, all from wheels")
        return
    version = arguments.python or (here if arguments.arch == platform.machine() else "3.12")
    build(arguments.arch, version, arguments.output or ROOT / "dist" / f"sparktop-{arguments.arch}.pyz")


if __name__ == "__main__":
    main()
