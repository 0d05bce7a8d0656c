"""Commands that capture from interfaces, or show them live."""
