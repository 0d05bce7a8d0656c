"""Wireshark on this machine: its view of a capture, its folders, and what we install there."""
