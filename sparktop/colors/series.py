"""Colours of the curves in drawn plots, on white and on black.

Colour-blind readers can distinguish the first five of each, which differ in lightness, or as blue and orange.
"""

from __future__ import annotations

ON_LIGHT = ("#0a66e0", "#b84a00", "#0f855a", "#7a1f6a", "#20262e", "#7d6200", "#0086a8")
ON_DARK = ("#4aa3f0", "#ff8a3d", "#a8ecc0", "#d87bc0", "#ffffff", "#f0e442", "#6fd0ff")
"""The same series has the same place in both."""
