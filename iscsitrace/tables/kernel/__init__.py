"""What the kernels of the hosts say of their TCP sockets (TCP_INFO).

Files of samples, their clocks, and the tables in which the counters take the place of estimates.
"""
