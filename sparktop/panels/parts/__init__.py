"""The parts that all panels are made of: rows, frames, graphs, sections and formatted values."""
