"""Small training programs in the style of the common examples; tests put a mistake into each."""
