"""What a run leaves behind for a person to read: what it printed, what its names lead to, which leaves have a gradient."""
