"""Where nothing smaller serves: other data structures, one step for two losses, a fresh start."""
