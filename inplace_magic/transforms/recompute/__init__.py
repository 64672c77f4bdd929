"""What was overwritten, or used up, is computed again; views are made again."""
