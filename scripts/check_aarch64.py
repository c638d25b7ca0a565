"""Every runtime dependency, and all that it needs, installs from wheels on a DGX Spark (aarch64).

Resolves for CPython 3.11 and 3.12 without installing anything. manylinux2014 wheels run on every aarch64
Linux with glibc 2.17 or newer, which all of a Spark's systems have; a dependency that needs newer tags
would have to be listed here.

pip judges environment markers by the machine it runs on, whatever platform it is asked for, so the script
reads each package's requirements again with the markers of the target and resolves once more with whatever
pip passed over.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PLATFORMS = ("manylinux2014_aarch64",)
VERSIONS = ("3.11", "3.12")
TIMEOUT_S = 120


def markers(version: str) -> dict[str, str]:
    """Give the marker variables of CPython on an aarch64 Linux."""
    return {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "aarch64",
        "python_version": version,
        "python_full_version": f"{version}.0",
        "implementation_version": f"{version}.0",
    }


def resolve(requirements: list[str], version: str) -> list[dict[str, Any]]:
    """Give what pip would install, as its report says.

    Raises:
        SystemExit: something has no wheel.
    """
    with tempfile.TemporaryDirectory() as nowhere:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", "-", "--target", nowhere, "--only-binary=:all:", "--implementation", "cp"]
        command += ["--python-version", version]
        command += [f"--platform={platform}" for platform in PLATFORMS]
        done = subprocess.run([*command, *requirements], capture_output=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"aarch64, Python {version}: not everything has a wheel\n{done.stderr.decode()}")
    installs: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return installs


def passed_over(installs: list[dict[str, Any]], version: str) -> set[str]:
    """Give the requirements that hold on the target and that pip, judging by this machine, left out."""
    present = {canonicalize_name(install["metadata"]["name"]) for install in installs}
    missing = set()
    for install in installs:
        extras = install.get("requested_extras") or [""]
        for line in install["metadata"].get("requires_dist", []):
            need = Requirement(line)
            holds = need.marker is None or any(
                need.marker.evaluate({**markers(version), "extra": extra}) for extra in extras
            )
            if holds and canonicalize_name(need.name) not in present:
                need.marker = None
                missing.add(str(need))
    return missing


def main() -> None:
    """Check each version of Python; exits with what is wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for version in VERSIONS:
        requirements: list[str] = list(project["dependencies"])
        installs = resolve(requirements, version)
        while missing := passed_over(installs, version):
            requirements += sorted(missing)
            installs = resolve(requirements, version)
        print(f"aarch64, Python {version}: {len(installs)} packages, all from wheels")


if __name__ == "__main__":
    main()
