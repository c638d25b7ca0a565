"""`sparktop sweep`: its arguments, targets, run and progress."""
