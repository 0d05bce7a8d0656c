"""The real world: network namespaces, other people's iSCSI programs, and what is recorded while they run.

Linux only, standard library only. What is made here meets the reading side in files: a capture and its truth.
"""
