"""Capture: interfaces, filters, and packets into files."""
