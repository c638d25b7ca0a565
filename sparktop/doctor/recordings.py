"""Checks of the flight recorder: where it writes, how many hours it keeps, and what it cannot record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sparktop.doctor.check import Check, Status
from sparktop.files import Place, folder_of
from sparktop.graphics import numbers
from sparktop.model.targets import Watch
from sparktop.model.text import clean
from sparktop.recording.flight import flight_folder, is_network, make_folder, parts
from sparktop.recording.incidents import incident_folder

_TITLE = "recorder"
_HOUR_S = 3600.0


def check_recorder(watch: Watch, env: Mapping[str, str]) -> list[Check]:
    """Return the checks of the flight recorder's folder, and advice about machines that may hang."""
    if not watch.flight:
        return [Check(_TITLE, Status.SKIP, "the flight recorder is off ([recorder] flight = false)")]
    folder = flight_folder(env)
    return [_check_folder(folder, watch, env), *_check_own_machine(watch)]


def _check_folder(folder: Path, watch: Watch, env: Mapping[str, str]) -> Check:
    where = clean(folder, 200)
    try:
        make_folder(folder)
    except OSError as error:
        advice = "nothing is recorded in the background: make the folder writable or set XDG_STATE_HOME"
        return Check(_TITLE, Status.WARN, f"{where}: {clean(error.strerror)}", advice)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(_TITLE, Status.WARN, f"{where}: not writable", "nothing is recorded in the background")
    usual = folder_of(env, Place.STATE) / "flight"
    moved = f"; not in {clean(usual, 200)}, which is on a network file system" if usual != folder else ""
    kept = _kept(folder)
    message = f"{where}: {kept} of at most {watch.flight_mib} MiB{moved}"
    if kept is None:
        message = f"nothing recorded yet in {where}, which keeps at most {watch.flight_mib} MiB{moved}"
    if is_network(folder):
        advice = "each second of recording waits for the network: set XDG_STATE_HOME to a local disk"
        return Check(_TITLE, Status.WARN, f"{message}; on a network file system", advice)
    return Check(_TITLE, Status.OK, message)


def _kept(folder: Path) -> str | None:
    """Return a part of a message: size and hours of the recorded files, and the number of saved incidents.

    None if nothing is recorded.

    The hours are those between the last writes of the oldest and the newest file.
    """
    found = [one.stat() for one in parts(folder)]
    size = numbers.data(sum(one.st_size for one in found), 12).strip()
    if not found:
        return None
    hours = (max(one.st_mtime for one in found) - min(one.st_mtime for one in found)) / _HOUR_S
    saved = len(parts(incident_folder(folder)))
    incidents = f", {saved} {'incident' if saved == 1 else 'incidents'} saved" if saved else ""
    return f"{size} over {hours:.1f} h{incidents},"


def _check_own_machine(watch: Watch) -> list[Check]:
    """Return a check with advice to record from elsewhere too, if this machine is watched; else []."""
    if not any(node.via == "local" for node in watch.nodes):
        return []
    message = "this machine records itself: if it hangs, its last seconds are not written"
    advice = "to keep them, run `sparktop record` on another machine as well (sparktop record --systemd-unit)"
    return [Check(_TITLE, Status.OK, message, advice)]
