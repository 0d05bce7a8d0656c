"""Plots: arrays become matplotlib Axes; nothing is computed here.

Each kind of `iscsitrace plot` is one file of ``kinds``. Only this package imports matplotlib, and only when a plot is
drawn.
"""
