"""A write becomes a new tensor, under the same name or under one of its own."""
