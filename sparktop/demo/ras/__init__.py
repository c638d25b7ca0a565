"""A simulated RAS thread of NCCL for engines that span several machines."""
