"""Statements change their places: updates, so that each backward goes through the weights that its loss was computed with."""
