"""Two sessions beside each other, a slow and a fast one: what differs, and which difference explains how much.

``sides`` says what is to be compared of a session, ``matching`` which session of the one capture stands beside which of
the other, ``differences`` what each difference is worth by the model. Pure functions of tables.
"""
