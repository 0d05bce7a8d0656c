"""The settings of a run: how each is written, which field of the core takes it, and the run that they make."""
