"""Mutation testing: small errors are put into the code, one at a time, to see which of them no test notices."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "build" / "mutants"
