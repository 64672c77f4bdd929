"""What several transformations ask of the text and the trace: who writes what, which statements meet, where values pass."""
