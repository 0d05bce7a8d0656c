"""Commands that capture from interfaces, or watch them."""
