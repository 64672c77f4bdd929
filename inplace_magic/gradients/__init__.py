"""What each backward gives to each leaf, and how two runs compare."""
