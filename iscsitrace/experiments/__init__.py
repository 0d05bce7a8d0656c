"""Experiments as data: what is run over which grid, and its results beside the model and what was published.

The one place where traffic and reading meet: the lab makes captures, and they are read. It prints nothing.
"""
