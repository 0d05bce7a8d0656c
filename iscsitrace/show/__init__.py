"""Results that leave the program: files of tables, sidecars, drawings; whole or not at all."""
