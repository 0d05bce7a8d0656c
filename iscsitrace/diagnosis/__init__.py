"""The diagnosis of a trace: what limits each session, connection and story, and which known problems it has."""
