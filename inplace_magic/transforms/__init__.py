"""Transformations that break the way from a write, or a freed graph, to the backward that needs it. One to a
file, or to a folder where it has several forms.

Each takes the points that the trace found and yields candidates. They may be generous: whatever is proposed is run and
compared before anyone sees it. They know evidence and text, never the shell; what a candidate costs stands in
``search.COSTS`` alone.
"""
