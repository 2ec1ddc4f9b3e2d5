# SPDX-License-Identifier: Apache-2.0
"""Fewer bits for the packed copies of weights, and for rows: what fuse() takes, as the ops name it."""

import typing

_WEIGHTS = (None, "int8", "int4")
_GROUPS = (32, 128)


def bits_of(
    weights: "str | None",
    activations: "str | None" = None,
    group: int = 128,
    zero_points: bool = False,
    int8_weights: bool = False,
) -> str:
    """The choice as epilogue::prepare takes it; "" is all bits.

    Raises ValueError where the choices do not fit each other.
    """

    def refuse(name: str, expected: str, got: typing.Any) -> typing.NoReturn:
        raise ValueError(f"{name}: expected {expected}, got {got!r}")

    if weights not in _WEIGHTS:
        refuse("weights", "None, 'int8' or 'int4'", weights)
    if activations not in (None, "int8"):
        refuse("activations", "None or 'int8'", activations)
    if int8_weights and weights not in (None, "int8"):
        refuse("weights", "'int8' or None beside int8_weights=True", weights)
    if int8_weights:
        weights = "int8"
    if activations is not None and weights is None:
        refuse("activations", "None unless weights are 'int8' or 'int4'", activations)
    if weights != "int4":
        if group != 128 or zero_points:
            refuse("group and zero_points", "none unless weights are 'int4'", (group, zero_points))
        return {None: "", "int8": "w8a8" if activations else "int8"}[weights]
    if group not in _GROUPS:
        refuse("group", "32 or 128", group)
    return f"{'w4a8' if activations else 'int4'}_{group}" + ("_zeros" if zero_points else "")


def options_of(bits: str) -> "dict[str, typing.Any]":
    """The choice of that name as fuse() takes it."""
    if not bits:
        return {}
    kind, *rest = bits.split("_")
    options: "dict[str, typing.Any]" = {"weights": "int8" if kind in ("int8", "w8a8") else "int4"}
    if kind in ("w8a8", "w4a8"):
        options["activations"] = "int8"
    if rest:
        options.update(group=int(rest[0]), zero_points="zeros" in rest)
    return options


def rows_of(bits: str) -> str:
    """Of weights that are rounded already: the choice for rows alone."""
    return "rows" if bits.startswith(("w8a8", "w4a8")) else ""
