"""What a trace and its tables show in a notebook, and its methods that stand above the tables.

``Trace`` and ``Table`` load this package by name, on use. Results are those of the commands; nothing is computed here.
"""
