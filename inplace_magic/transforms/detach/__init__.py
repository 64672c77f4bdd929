"""A value is taken without its history where it passes from one backward's graph into the next one's."""
