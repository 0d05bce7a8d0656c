"""``iscsitrace watch``: a live view of iSCSI traffic.

```
source      the input: an interface (captured by a child process), a growing file, a pipe
watcher     reads the input interval by interval: figures, totals, findings
figures     one interval of one session or connection
findings    the diagnosis of the last seconds, repeated from time to time
columns     of sessions and connections
board       the live view as text of any width, or as lines for a pipe; screen: on a terminal, with keys
exposition  figures for Prometheus; server: over HTTP, with TLS and passwords
snapshot    files
```
"""
