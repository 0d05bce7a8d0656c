"""The tables that a pass over a capture fills, and the meaning of each column."""
