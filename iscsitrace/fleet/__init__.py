"""Many captures of many taps: one chain of passes for each tap, and one dataset of Parquet files."""
