"""How the work of every reading command grows with every count that an input can have."""
