"""Chores of the source tree; not part of the installed package."""
