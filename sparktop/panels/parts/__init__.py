"""What all panels consist of: rows, frames, graphs, sections and formatted values."""
