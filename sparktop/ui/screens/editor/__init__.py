"""The editor of sweeps: its screen, its fields, which of them a kind of load has, and the traces it reads."""
