"""The terminal, as commands import it."""

from iscsitrace.outputs.terminal import envelope, show_heading, show_json, show_line, show_table

__all__ = ["envelope", "show_heading", "show_json", "show_line", "show_table"]
