"""What figures of a level are called and mean; how requests fail; statistics of a few values; limits."""
