"""The model of the read study, extended: how long a block takes over a path, and what limits it.

Defined in docs/method.md, section 6. ``setting`` says what is asked, ``prediction`` what the model answers; ``fit``
finds the parameters from captures. Pure functions; nothing here reads a capture.
"""
