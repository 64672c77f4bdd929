"""Where nothing smaller serves: one step for two losses, weights of their own for inner steps, a fresh start."""
