"""From what was recorded to what a person reads: conflicts, and what a failed graph still tells."""
