"""The data of plots, as arrays: one file per kind of plot, pure functions of tables, NumPy only."""
