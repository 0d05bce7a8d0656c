"""Captures of the same traffic at several taps: recognition, clocks, and the legs of each command (method 11)."""
