"""The model of the read study, extended: how long an I/O takes over a path, and what bounds the throughput.

docs/method.md, section 6, defines it: ``setting`` is its input, ``prediction`` its output. Pure functions of numbers:
they read no captures and no tables.
"""
