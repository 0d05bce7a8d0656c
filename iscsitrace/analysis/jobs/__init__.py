"""Jobs that several connections carry together, as streams beside each other: which they are, and how even."""
