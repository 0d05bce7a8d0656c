"""A fit read back from the JSON of ``model fit --json``: the start of a what-if, with its confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import sqrt
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.model.cycle import legs
from iscsitrace.model.setting import Setting, Solicitation
from iscsitrace.model.uncertainty import Estimate, FittedPlace

_WHOLE: Final = Estimate.exact(1.0, "assumed")


@dataclass(frozen=True)
class FittedModel:
    """The part of a fit that predictions need."""

    k: Estimate
    d_ns: Estimate
    s_ns: Estimate
    c_bytes_per_s: Estimate | None
    k_of_legs: float
    """One-way delays of the legs of ``setting``."""
    setting: Setting
    stall_share: Estimate = _WHOLE
    correlations: Mapping[str, float] = field(default_factory=dict)
    scatter: float = 0.0
    """How much the period of one more run differs from the model's at 95 % confidence, as a share."""
    places: tuple[FittedPlace, ...] = ()


def from_document(document: object) -> FittedModel:
    """Reads a fit; InputInvalid, with the reason, for a document that is none."""
    try:
        if not isinstance(document, Mapping):
            raise TypeError("not a JSON object")
        k, d_ns, s_ns = (Estimate(**document[name]) for name in ("k", "d_ns", "s_ns"))
        c = Estimate(**document["c_bytes_per_s"]) if document["c_bytes_per_s"] else None
        setting = _setting(document["setting"])
        rows = document["residuals"]
        k_of_legs = document.get("k_of_legs") or sum(leg.delays for leg in legs(setting))
        # fits of an earlier version have residuals and no scatter
        off = sqrt(sum(float(row["residual"]) ** 2 for row in rows) / max(1, len(rows)))
        scatter = float(document.get("scatter", 2 * off))
        correlations = {str(names): float(each) for names, each in document.get("correlations", {}).items()}
        share = Estimate(**document["stall_share"]) if "stall_share" in document else _WHOLE
        places = tuple(_place(row) for row in rows if "is_status_apart" in row)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputInvalid(f"not the output of model fit --json: {problem}") from error
    return FittedModel(k, d_ns, s_ns, c, float(k_of_legs), setting, share, correlations, scatter, places)


def _place(row: Mapping[str, Any]) -> FittedPlace:
    known = {field.name for field in fields(FittedPlace)} - {"delay_ns"}
    return FittedPlace(**{name: row[name] for name in known if name in row}, delay_ns=row["delay_ns"]["value"])


def _setting(document: Mapping[str, Any]) -> Setting:
    known = {field.name for field in fields(Setting)} - {"solicitation"}
    others = {name: value for name, value in document.items() if name in known}
    return Setting(
        **others | {"target_delays_ns": tuple(document.get("target_delays_ns", ()))},
        solicitation=Solicitation(**document.get("solicitation", {})),
    )
