"""Where gradients are recorded, and how long a graph is kept: ``no_grad``, inference mode, ``retain_graph``."""
