"""One report of a diagnosis for each medium: ``text`` for terminals, ``html`` for notebooks, ``bundle`` for both."""
