"""Faults of a run by name, the same in the three worlds: simulated hosts, network namespaces, and guests."""
