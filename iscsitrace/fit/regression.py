"""The fit: the parameters that points have in common, their sources, and the residual of each point.

```text
period = k * d + s + B / C + stalls
```
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.paid import Paid
from iscsitrace.fit.parameters import Parameters
from iscsitrace.fit.points import Fit, Point
from iscsitrace.model.legs import legs


def fit(points: Sequence[Point], socket_bytes_per_s: float | Sequence[float] | None = None) -> Fit:
    """The parameters that all points have in common, with 95 % confidence intervals.

    ``socket_bytes_per_s`` is the throughput of a plain TCP transfer over the same path, one for all points or one for
    each; without it, C is the rate of line or bursts. InputInvalid where there is nothing to fit.
    """
    if not points:
        raise InputInvalid("nothing to fit: there are no steady cycles")
    if len({point.setting.operation for point in points}) > 1:
        raise InputInvalid("nothing to fit: reads and writes do not share parameters")
    sockets = _sockets(points, socket_bytes_per_s)
    if sockets:
        # the throughput of a plain transfer includes the limit of its windows
        points = [replace(point, setting=replace(point.setting, window_bytes=None)) for point in points]
    paid = [Paid.of(point) for point in points]
    # writes with other R2T rounds pay other delays; k is that of most cycles
    reference = max(paid, key=lambda each: each.point.cycle_count)
    found = Parameters(paid, reference, sockets)
    k, s, c = found.k, found.s_ns, found.c_bytes_per_s
    models = [found.model(place, s.value) for place in range(len(points))]
    middle = sorted(points, key=lambda point: point.delay_ns.value)[len(points) // 2]
    return Fit(
        k=k,
        d_ns=middle.delay_ns,
        s_ns=s,
        c_bytes_per_s=c,
        ack_delay_ns=found.ack_delay_ns,
        stall_share=found.stall_share,
        correlations=found.correlations,
        scatter=found.scatter([model.period_ns for model in models]),
        k_of_legs=reference.delays,
        legs=reference.point.seen.legs or legs(reference.point.setting),
        setting=replace(reference.point.setting, service_ns=s.value, c_bytes_per_s=c.value if c else None),
        points=tuple(points),
        models=tuple(models),
        residuals=tuple(point.period_ns / model.period_ns - 1 for point, model in zip(points, models, strict=True)),
        cycles_used=sum(point.cycle_count for point in points),
        cycles_left_out=dict(sum((Counter(point.left_out) for point in points), Counter[str]())),
        undetermined=tuple(found.undetermined),
    )


def _sockets(points: Sequence[Point], given: float | Sequence[float] | None) -> list[float] | None:
    if given is None:
        return None
    sockets = list(given) if isinstance(given, Sequence) else [given] * len(points)
    if len(sockets) != len(points) or min(sockets) <= 0:
        raise InputInvalid("the socket throughput has to be more than 0: one for all points, or one for each")
    return sockets
