"""``iscsitrace watch``: a live view of iSCSI traffic.

```
source      what is watched: an interface (a capture as child), a growing file, a pipe
watcher     looks at it interval by interval: figures, totals, findings
figures     one interval of one session or connection
findings    the diagnosis of the recent past, now and then
board       figures as text of any width; screen: on a terminal, with keys; lines: into a pipe
exposition  figures for Prometheus; snapshot: into files
```
"""
