"""What figures mean: pure functions of snapshots and series, standard library only."""
