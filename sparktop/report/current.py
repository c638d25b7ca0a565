"""Removes outdated values from a snapshot.

On screen, the last values of a source that does not answer may be dimmed with their age beside them. In a
report or a file they would be taken for current values, so they become unknown. The identity of the source
and the reason of its failure stay.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot


def current(snapshot: Snapshot) -> Snapshot:
    """Return `snapshot` with the values of sources that do not answer set to unknown."""
    return replace(
        snapshot,
        backends=tuple(view if view.failure is None else _backend(view) for view in snapshot.backends),
        nodes=tuple(view if view.failure is None else _node(view) for view in snapshot.nodes),
        routers=tuple(view if view.failure is None else _router(view) for view in snapshot.routers),
    )


def _backend(view: BackendView) -> BackendView:
    return BackendView(
        view.name,
        view.url,
        view.group,
        state=view.state,
        state_rule=view.state_rule,
        loading=view.loading,
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
        ranks=view.ranks,
        scrape=view.scrape,
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
        scrape=view.scrape,
    )


def _router(view: RouterView) -> RouterView:
    return replace(view, failures=None, cooldowns=None, refusals=None, sent=None, queued=None, in_flight=None)
