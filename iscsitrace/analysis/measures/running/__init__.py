"""Results of a trace that has no end yet: values come in parts, and memory does not grow with their number."""
