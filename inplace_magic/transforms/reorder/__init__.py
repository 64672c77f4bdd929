"""Updates change their places, so that each backward goes through the weights that its loss was computed with."""
