"""Commands that make traffic."""
