"""Arrays in, results out: pure functions of a trace's tables, NumPy only. Nothing here reads, prints or plots."""
