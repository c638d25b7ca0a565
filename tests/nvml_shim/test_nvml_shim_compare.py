"""scripts/compare_nvidia_smi.py with a driver and an nvidia-smi that answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml_shim import shim_states as states
from tests.nvml_shim.conftest import ROOT, Shim

PAGE = """\
<nvidia_smi_log><gpu id="0"><product_name>NVIDIA H200</product_name>
<mig_mode><current_mig>Disabled</current_mig></mig_mode>
<uuid>GPU-00000000-2222-3333-4444-555555555555</uuid>
<clocks_event_reasons>
<clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap></clocks_event_reasons>
<clocks_event_reasons_counters>
<clocks_event_reasons_counters_sw_power_cap>7000000 us</clocks_event_reasons_counters_sw_power_cap>
</clocks_event_reasons_counters>
<fb_memory_usage><total>144384 MiB</total><used>92160 MiB</used></fb_memory_usage>
<utilization><gpu_util>87 %</gpu_util></utilization>
<temperature><gpu_temp>{heat} C</gpu_temp><gpu_temp_tlimit>35 C</gpu_temp_tlimit></temperature>
<gpu_power_readings><average_power_draw>612.00 W</average_power_draw>
<current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
<clocks><sm_clock>1830 MHz</sm_clock></clocks><max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>
<processes><process_info><pid>4242</pid><type>C</type><used_memory>90112 MiB</used_memory></process_info>
</processes></gpu></nvidia_smi_log>
"""


@pytest.mark.process
@pytest.mark.parametrize(("heat", "code"), [(52, 0), (70, 1)])
def test_the_script_tells_whether_all_agrees(shim: Shim, tmp_path: Path, heat: int, code: int) -> None:
    """The script compares our readings with nvidia-smi, prints a table and sets the exit code."""
    (shim.folder / "state").write_text(states.h200(), encoding="utf-8")
    (tmp_path / "page").write_text(PAGE.format(heat=heat), encoding="utf-8")
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncat "{tmp_path}/page"\n', encoding="utf-8")
    program.chmod(0o755)
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(shim.folder),
        "NVML_SHIM_STATE": str(shim.folder / "state"),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    command = [sys.executable, str(ROOT / "scripts" / "compare_nvidia_smi.py"), "--seconds", "0.05"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - fixed
    assert (done.returncode, done.stderr) == (code, "")
    assert "| memory_used_bytes | 92160 MiB | 92160 MiB |  | ok |" in done.stdout
    assert ("| temperature_c | 52 | 70 | 18 | NO |" in done.stdout) == bool(code)
    assert done.stdout.endswith("fields that differ: 1\n" if code else "all fields agree\n")
