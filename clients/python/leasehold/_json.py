"""JSON whose numbers are not rounded.

An integer is an `int` of any size. A number with a fraction or an exponent is a `float` if that has the same value, and a
`decimal.Decimal` otherwise. A `Decimal` is sent with its own digits.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Union


def loads(content: bytes) -> Any:
    """The value of a JSON text; `ValueError` if it is none."""
    return json.loads(content, parse_int=_integer, parse_float=_number)


def dumps(value: Any) -> str:
    """The JSON text of a value; `TypeError` or `ValueError` if it has none."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no JSON number")
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(key)}:{dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _key(key: Any) -> str:
    """A key as `json` writes it, which takes some that are no text."""
    return json.dumps({key: 0}, allow_nan=False, ensure_ascii=False)[1 : -len(": 0}")]


def _integer(text: str) -> Union[int, Decimal]:
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return Decimal(text)


def _number(text: str) -> Union[float, Decimal, str]:
    number = float(text)
    try:
        exact = Decimal(text)
        return number if Decimal(repr(number)) == exact else exact
    except ArithmeticError:  # an exponent that not even a Decimal has
        return text
