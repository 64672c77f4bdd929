"""``python -m inplace_magic TARGET``: scripts and notebooks without a session, for a terminal, a hook, or CI."""
