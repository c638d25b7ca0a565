"""Answers of NCCL from tests/data/ras, as JSON and as values."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from sparktop.hardware.ras import parse_json
from sparktop.model.ranks import RanksAnswer

DATA = Path(__file__).resolve().parents[2] / "data" / "ras"


def example(name: str) -> str:
    return (DATA / f"{name}.json").read_text(encoding="utf-8")


def answer(name: str, nccl: str = "2.30.7") -> RanksAnswer:
    return replace(parse_json(example(name)), nccl=nccl)
