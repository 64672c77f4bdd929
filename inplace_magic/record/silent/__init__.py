"""Detectors of writes that torch itself does not see."""
