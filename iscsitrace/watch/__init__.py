"""``iscsitrace watch``: a live view of iSCSI traffic.

```
source      the input: an interface (captured by a child process), a growing file, a pipe
watcher     reads the input interval by interval: figures, totals, findings
figures     one interval of one session or connection
findings    the diagnosis of the last seconds, repeated from time to time
columns     of sessions and connections
board       the live view as text of any width, as the user chose; screen: on a terminal, with keys; lines: for a pipe
exposition  figures for Prometheus; server: over HTTP; web_config: TLS and passwords
snapshot    files
```
"""
