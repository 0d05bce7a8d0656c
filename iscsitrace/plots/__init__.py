"""Plots: arrays become Axes. One file a kind, each with ``draw(figure, arrays)``; they compute nothing.

matplotlib is imported here and nowhere else in the package, and only when a plot is drawn.
"""
