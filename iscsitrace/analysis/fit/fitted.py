"""A fit read back from the JSON of ``model fit --json``: the start of a what-if, with its confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.legs import legs
from iscsitrace.analysis.model.setting import Setting, Solicitation
from iscsitrace.errors import InputInvalid


@dataclass(frozen=True)
class Fitted:
    """The part of a fit that predictions need."""

    k: Estimate
    d_ns: Estimate
    s_ns: Estimate
    c_bytes_per_s: Estimate | None
    k_of_legs: float
    """One-way delays of the legs of ``setting``."""
    setting: Setting
    residuals: tuple[float, ...]


def from_document(document: object) -> Fitted:
    """Reads a fit; InputInvalid, with the reason, for a document that is none."""
    try:
        if not isinstance(document, Mapping):
            raise TypeError("not a JSON object")
        k, d_ns, s_ns = (Estimate(**document[name]) for name in ("k", "d_ns", "s_ns"))
        c = Estimate(**document["c_bytes_per_s"]) if document["c_bytes_per_s"] else None
        setting = _setting(document["setting"])
        residuals = tuple(float(row["residual"]) for row in document["residuals"])
        k_of_legs = document.get("k_of_legs") or sum(leg.delays for leg in legs(setting))
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputInvalid(f"not the output of model fit --json: {problem}") from error
    return Fitted(k, d_ns, s_ns, c, float(k_of_legs), setting, residuals)


def _setting(document: Mapping[str, Any]) -> Setting:
    known = {field.name for field in fields(Setting)} - {"solicitation"}
    others = {name: value for name, value in document.items() if name in known}
    return Setting(
        **others | {"target_delays_ns": tuple(document.get("target_delays_ns", ()))},
        solicitation=Solicitation(**document.get("solicitation", {})),
    )
