"""Measures of the tables that need no model: intervals, the time breakdown, throughput, distributions."""
