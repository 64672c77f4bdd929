"""Keeps a run from having effects outside of its process."""
