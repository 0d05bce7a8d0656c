"""Mutation testing: small errors are inserted into the code, one at a time, to find those that no test detects."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "build" / "mutants"
