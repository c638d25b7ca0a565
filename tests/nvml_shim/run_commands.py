"""Runs the command line again and again in a process that was started with the shim in its path.

Standard input: JSON, [[state, [word, ...]], ...]. Standard output: JSON, exit code and output of each.
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
