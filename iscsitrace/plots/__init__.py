"""Plots: each kind of `iscsitrace plot` is one file of ``kinds``, which makes the arrays of a view and draws them.

Only this package imports matplotlib, and only when a plot is drawn.
"""
