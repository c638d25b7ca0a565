"""Plans of sweeps, and how a user chooses their settings: presets, the editor, SLO conditions."""
