"""Experiments: workloads over a grid of settings, and their results beside the model and published values.

Traffic and reading meet only here: the lab makes captures, and experiments read them. Nothing here prints.
"""
