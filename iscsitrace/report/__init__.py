"""What a report has, and in which order: results as sections of blocks, which iscsitrace/show writes."""
