"""Plots in a desktop window, with the toolkit that matplotlib finds."""

from __future__ import annotations

from matplotlib.figure import Figure


def open_figure(width_in: float, height_in: float) -> Figure | None:
    """A figure in a window; None if no window can be opened."""
    from matplotlib import pyplot
    from matplotlib.backends.registry import BackendFilter, backend_registry

    able = backend_registry.list_builtin(BackendFilter.INTERACTIVE)  # type: ignore[no-untyped-call]
    if pyplot.get_backend().lower() not in able:
        return None
    return pyplot.figure(figsize=(width_in, height_in), layout="constrained")


def wait() -> None:
    """Shows the windows until they are closed."""
    from matplotlib import pyplot

    pyplot.show()
