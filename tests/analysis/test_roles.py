"""Prefill and decode workers, recognised by what they count."""

from __future__ import annotations

import pytest

from sparktop.store.load_log import Role, Work, reported_roles, worker_roles

PREFILL = Work(100.0, 51_200.0, 100.0)
DECODE = Work(98.0, 0.0, 12_000.0)
PLAIN = Work(100.0, 51_200.0, 12_000.0)


def test_prompts_alone_and_answers_alone_are_roles() -> None:
    """Workers that count only prompts are prefill workers, those that count only answers decode workers."""
    found = worker_roles({"p1": PREFILL, "p2": PREFILL, "d1": DECODE, "d2": DECODE})
    assert found == {"p1": Role.PREFILL, "p2": Role.PREFILL, "d1": Role.DECODE, "d2": Role.DECODE}


def test_a_decode_worker_may_count_the_prompts_that_it_was_handed() -> None:
    """A decode worker may count prompts too; both kinds must then have finished equally many requests."""
    assert worker_roles({"p": PREFILL, "d": PLAIN}) == {"p": Role.PREFILL, "d": Role.DECODE}
    assert worker_roles({"p": PREFILL, "d": Work(50.0, 25_600.0, 6_000.0)}) == {}


@pytest.mark.parametrize(
    "other",
    [PREFILL, Work(), Work(3.0, 100.0, 300.0), Work(100.0, 51_200.0, 250.0), Work(100.0, None, 12_000.0)],
    ids=["both prefill", "counts nothing", "too few", "short answers", "no prompts counted"],
)
def test_other_groups_have_no_roles(other: Work) -> None:
    """Groups without a clear pair have no roles: one-token requests alone, or missing counts."""
    assert worker_roles({"p": PREFILL, "x": other}) == {}
    assert worker_roles({"x": PLAIN, "y": PLAIN}) == {}


def test_roles_that_servers_report_need_no_counting() -> None:
    """Reported roles are used; Dynamo's "backend" is a decode worker only beside a prefill worker."""
    assert reported_roles({"p": "prefill", "d": "decode", "x": None}) == {"p": Role.PREFILL, "d": Role.DECODE}
    assert reported_roles({"p": "prefill", "b": "backend", "e": "encode"}) == {
        "p": Role.PREFILL,
        "b": Role.DECODE,
    }
    assert reported_roles({"a": "backend", "b": "backend"}) == {}
    assert reported_roles({"a": None}) == {}
