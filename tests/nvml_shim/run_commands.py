"""Runs the command line repeatedly in a process with the shim in its library path.

Standard input is JSON, [[state, [word, ...]], ...]. Standard output is JSON, exit code and output of each.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from sparktop.cli import main as sparktop


def main() -> None:
    state_file = Path(os.environ["NVML_SHIM_STATE"])
    answers = []
    for state, words in json.load(sys.stdin):
        state_file.write_text(state, encoding="utf-8")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = sparktop(words)
        answers.append([code, out.getvalue()])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
