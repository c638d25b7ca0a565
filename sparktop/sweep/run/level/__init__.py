"""The runs of one level: made and recorded."""
