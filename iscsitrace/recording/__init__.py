"""Capturing packets into files: interfaces, filters, the compiled core's capture."""
