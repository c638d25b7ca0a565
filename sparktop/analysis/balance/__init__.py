"""Balance of a group of backends behind one router: from their loads to a verdict and its evidence."""
