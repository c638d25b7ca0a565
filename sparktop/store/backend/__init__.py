"""What the store keeps of one backend."""
