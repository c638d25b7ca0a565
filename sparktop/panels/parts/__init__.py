"""The parts of all panels: rows, frames, graphs, sections, figures."""
