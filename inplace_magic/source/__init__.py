"""The text of cells and files, as a person wrote it. Nothing of torch."""
