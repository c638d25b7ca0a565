"""Series beside one another: own results, other tools' files and published tables."""
