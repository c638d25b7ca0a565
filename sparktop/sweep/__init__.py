"""Load on servers: planning it, making it and measuring what came of it."""
