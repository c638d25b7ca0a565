"""Balance of a group of backends: from their loads to a verdict and its evidence."""
