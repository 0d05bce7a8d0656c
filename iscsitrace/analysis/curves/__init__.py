"""What plots show, as arrays: one file a kind of plot, pure functions over tables, NumPy only."""
