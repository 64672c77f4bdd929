"""A package, so that what its fixtures start ends with its last test: a browser, a server, an event loop."""
