"""A snapshot without figures that nobody knows any more.

A screen may dim the last figures of a source that does not answer and show their age. In a report or a file
they would be read as those of now, so there they are unknown. What a source is, and why it does not answer,
stays.
"""

from __future__ import annotations

from dataclasses import replace

from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot


def current(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the figures of failing sources taken out."""
    return replace(
        snapshot,
        backends=tuple(one if one.failure is None else _backend(one) for one in snapshot.backends),
        nodes=tuple(one if one.failure is None else _node(one) for one in snapshot.nodes),
        routers=tuple(one if one.failure is None else _router(one) for one in snapshot.routers),
    )


def _backend(view: BackendView) -> BackendView:
    return BackendView(
        view.name,
        view.url,
        view.group,
        state=view.state,
        state_rule=view.state_rule,
        failure=view.failure,
        failing_since=view.failing_since,
        age_s=view.age_s,
        engine=view.engine,
        version=view.version,
        model=view.model,
        max_model_len=view.max_model_len,
        nodes=view.nodes,
        slots=view.slots,
        restarts=view.restarts,
    )


def _node(view: NodeView) -> NodeView:
    return NodeView(
        view.name,
        view.via,
        identity=view.identity,
        failure=view.failure,
        failing_since=view.failing_since,
        age_s=view.age_s,
        speed=view.speed,
    )


def _router(view: RouterView) -> RouterView:
    return replace(view, failures=None, cooldowns=None, refusals=None)
