"""Programs for the command line: ``python -m rsnet.tools.im2rec``."""
