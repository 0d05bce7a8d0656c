"""Comparisons: two sessions (`diff`), this program's reading with tshark's, and a capture with the truth of its run.

For `diff`, ``sides`` has the figures of a session and picks the two sessions, and ``differences`` attributes the gap
between them with the model. Pure functions of tables.
"""
