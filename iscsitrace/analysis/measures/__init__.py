"""What can be measured of tables without a model: intervals, the time breakdown, volumes, distributions."""
