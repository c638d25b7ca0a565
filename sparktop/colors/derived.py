"""Colours that a theme may leave out: of kinds of panels, of spare capacity, and of series in one plot.

They are chosen among the theme's own colours, such that they differ clearly for all kinds of eyes. Where a
theme has too few different colours, sparktop's own are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sparktop.colors.vision import chroma, difference, hue
from sparktop.graphics.gradient import contrast, mix

KINDS = ("node", "backend", "router", "balance", "sweep")
"""Kinds of panels: each has a colour for its name, and a paler one of the same hue for its frame."""
PARTS = tuple(f"part_{letter}" for letter in "abcdefgh")
"""Series of one plot, such as the backends of a group, in order."""
INFO = "info"
"""Role of what is neither good nor bad, such as a backend with spare capacity: blue."""
OPTIONAL_ROLES = (INFO, *KINDS, *PARTS)
"""Roles that a theme file may leave out."""
EDGES = tuple(f"{kind}_edge" for kind in KINDS)
"""Roles of the frames of panels; always derived."""
STACKED = (("running", "waiting"), ("generation", "prompt"))
"""Gradients that share a plot, step by step."""

APART = 12.0
"""Least difference of two series in one plot (CIELAB, for the eyes that see them closest)."""
STACKED_APART = 20.0
"""As `APART`, for two gradients in one plot."""
_KINDS_APART = 10.0
"""As `APART`, for kinds of panels, which are also named."""
_LEAST_CHROMA = 20.0
"""A theme without any colour of more chroma (CIELAB) is grey, and stays grey."""
_READABLE = 4.5
_BLUE = (205.0, 265.0)
"""Hues in degrees that count as blue."""
_OURS: Mapping[bool, Mapping[str, tuple[str, ...]]] = {
    True: {
        INFO: ("#6cb2ff",),
        "kinds": ("#86b84a", "#6aa5e8", "#c08ae0", "#4fbfae", "#d6a75c"),
        "parts": (
            "#13dda3", "#4f81e8", "#fcbf53", "#d158a9", "#98920d", "#cba0fa", "#c2fc8a", "#d54a6d"
        ),
        "stops": ("#2fb5ac", "#e8963a", "#7bd88f", "#4f81e8", "#cba0fa", "#f2f2f2", "#ffd166"),
    },
    False: {
        INFO: ("#0a5cc0",),
        "kinds": ("#3f7500", "#1f5fb0", "#7a3cb0", "#0b7070", "#8a5a00"),
        "parts": (
            "#178064", "#1e47c2", "#6e4907", "#8d2188", "#807402", "#22106b", "#5a773b", "#7b0c32"
        ),
        "stops": ("#0b7a75", "#a85300", "#1a7f5a", "#1e47c2", "#6f42c1", "#101010", "#7a6a00"),
    },
}  # fmt: skip
"""sparktop's own colours for these roles, on dark and on light backgrounds."""

Gradients = Mapping[str, tuple[str, ...]]


def ansi_colors(colors: Mapping[str, str], gradients: Gradients) -> dict[str, str]:
    """Return `colors` with all optional roles and panel frames, for a theme of the terminal's 16 colours.

    A role that `colors` lacks gets the colour of a similar role or gradient of the theme.
    """
    similar = ("generation", "prompt", "memory", "network", "gpu", "cpu", "waiting", "running")
    parts = {part: gradients[name][-1] for part, name in zip(PARTS, similar, strict=True)}
    full = {INFO: colors["accent"], **dict.fromkeys(KINDS, colors["border"]), **parts, **colors}
    return full | {edge: full[kind] for edge, kind in zip(EDGES, KINDS, strict=True)}


def all_colors(
    colors: Mapping[str, str], gradients: Gradients, background: str, *, dark: bool
) -> dict[str, str]:
    """Return `colors` with a colour, "#rrggbb", for every optional role and for the frames of panels.

    Optional roles that `colors` has already stay as they are; frames are always derived. `background` is the
    theme's background, and `dark` whether it is dark.
    """
    least = min(_READABLE, contrast(colors["text"], background))
    ours = _OURS[dark]

    def readable(color: str) -> str:
        return _strong(color, background, colors["text"], least)

    stops = [stop for name in gradients for stop in (gradients[name][0], gradients[name][-1])]
    own = [*stops, *(colors[role] for role in ("accent", "key", "title"))]
    grey = max(map(chroma, own), default=0.0) < _LEAST_CHROMA
    full = dict(colors)
    signals = [full[role] for role in ("good", "warn", "bad")]
    blues = [stop for stop in stops if _BLUE[0] <= hue(stop) <= _BLUE[1] and chroma(stop) >= _LEAST_CHROMA]
    _fill(full, (INFO,), map(readable, (*blues, *ours[INFO])), signals, APART)
    kinds = [full["border"]] * len(KINDS) if grey else [*own, *ours["kinds"]]
    _fill(full, KINDS, map(readable, kinds), [full["bad"]], 0.0 if grey else _KINDS_APART)
    ends = [steps[-1] for steps in gradients.values()]
    more = [mix(part, other, 0.4) for other in (background, full["text"]) for part in ours["parts"]]
    _fill(full, PARTS, map(readable, (*ends, *ours["parts"], *more)), [], APART)
    strength = contrast(full["border"], background)
    return full | {
        edge: _paler(full[kind], background, strength) for edge, kind in zip(EDGES, KINDS, strict=True)
    }


def _fill(
    full: dict[str, str], roles: Sequence[str], candidates: Iterable[str], beside: Sequence[str], least: float
) -> None:
    """Add to `full` a colour from `candidates` for each of `roles` that is missing in it.

    The colour is the first candidate that differs by at least `least` from the colours in `beside` and from
    those that `roles` have so far. If there is no such candidate, it is the candidate that differs most.
    """
    missing = [role for role in roles if role not in full]
    if not missing:
        return
    pool = list(dict.fromkeys(candidates))
    chosen = [*beside, *(full[role] for role in roles if role in full)]
    for role in missing:
        apart = {color: min((difference(color, one) for one in chosen), default=100.0) for color in pool}
        most = max(pool, key=apart.__getitem__)
        full[role] = next((color for color in pool if apart[color] >= least), most)
        chosen.append(full[role])


def _strong(color: str, background: str, toward: str, least: float) -> str:
    """Return `color`, mixed with the colour `toward` until its contrast with `background` is `least`."""
    return next((mixed for mixed in _mixes(color, toward) if contrast(mixed, background) >= least), toward)


def _paler(color: str, background: str, least: float) -> str:
    """Return `color`, mixed with `background` as far as a contrast ratio of `least` allows."""
    usable = [mixed for mixed in _mixes(color, background) if contrast(mixed, background) >= least]
    return usable[-1] if usable else color


def _mixes(color: str, other: str) -> Iterator[str]:
    steps = 16
    return (mix(color, other, step / steps) for step in range(steps))


def apart_gradients(
    gradients: Gradients, background: str, text: str, *, dark: bool
) -> dict[str, tuple[str, ...]]:
    """Return `gradients` with the second of each pair in `STACKED` replaced if it looks like the first.

    It is replaced by another gradient of the theme, else by a single colour of sparktop's, which is mixed
    with the colour `text` until it can be seen on `background`.
    """
    result = dict(gradients)
    least = min(_READABLE, contrast(text, background))
    for one, other in STACKED:
        steps = len(gradients[one])
        pool = [gradients[other], *gradients.values()]
        pool += [tuple(reversed(each)) for each in pool]
        pool += [(_strong(stop, background, text, least),) * steps for stop in _OURS[dark]["stops"]]
        worst = [min(map(difference, gradients[one], each)) for each in pool]
        good = (each for each, least in zip(pool, worst, strict=True) if least >= STACKED_APART)
        result[other] = next(good, pool[worst.index(max(worst))])
    return result
