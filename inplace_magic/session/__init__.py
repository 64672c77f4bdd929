"""What a shell holds: its cells, its names, its live objects; and how a cell of it is run."""
