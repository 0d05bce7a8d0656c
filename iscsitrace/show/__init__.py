"""Results as sections of blocks, their writers, and files of tables, whole or not at all."""
