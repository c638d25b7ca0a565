"""Making a sweep: targets prepared, levels made one after the other, judged and kept."""
