"""What panels are made of: rows, frames, graphs, sections, figures."""
