"""Wireshark on this machine: its dissection of a capture, its folders, and the files installed there."""
