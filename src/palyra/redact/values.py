"""Texts and JSON values with every secret in them replaced, keys and numbers included.

Nearly every value holds none, so the first question is always whether there is anything to do at all; only then is a
value taken apart and made again.

Not here: how secrets are found and what stands in their place (stream).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import orjson

from palyra.canon import Json
from palyra.redact.stream import LITERALS, SEARCHING, SIGNS, Redactor, Secrets

_SEARCHES = tuple(detector.find for detector in SEARCHING)


def redact_text(text: str, secrets: Secrets = ()) -> str:
    return _redact_str(text, Redactor(secrets))


def redact_json(value: Json, secrets: Secrets = ()) -> Json:
    """The same value with secrets replaced in every string and every key; numbers throughout are one series.

    Nearly every value holds none, so all its texts are looked through at once first: each stands whole in the joined
    bytes, and a false alarm across a seam only costs the slow way.
    """
    if not secrets and _is_clear_value(value):
        return value
    whole = b"\n\0".join(_texts(value))
    redactor = Redactor(secrets)
    if redactor.finish(whole) == whole:
        return value
    return _redact_value(value, Redactor(secrets))


def is_clear(data: bytes, secrets: Secrets = ()) -> bool:
    """Whether `redact_json` would leave the value of these JSON bytes as it is, told without reading them. False may
    also mean: not sure.

    Without escapes every text of the value stands in the bytes as it is, and no detector looks further where the
    literal that it starts from is nowhere.
    """
    if secrets or b"\\" in data:
        return False
    if SIGNS.are_none_in(data):
        return True
    for literal in LITERALS:  # a plain loop over all of them: several times a call, and nearly always in vain
        if data.find(literal) != -1:  # `in` tries each as a number first, with an error made and dropped
            return False
    for find in _SEARCHES:  # noqa: SIM110  # as above
        if find(data, 0):
            return False
    return True


def _is_clear_value(value: Json) -> bool:
    try:
        return is_clear(orjson.dumps(value))
    except (orjson.JSONEncodeError, TypeError):
        return False


def redact_json_counted(value: Json, secrets: Secrets = ()) -> tuple[Json, Mapping[str, int]]:
    """The same, and how many of each kind were replaced."""
    redactor = Redactor(secrets)
    clean = _redact_value(value, redactor)
    return clean, dict(sorted(redactor.counts.items()))


def hidden_by_shape(value: Json, secrets: Secrets = ()) -> tuple[int, int]:
    """Parts that `redact_json` hides because of what they look like, and those that could be anything (Redactor)."""
    if not secrets and _is_clear_value(value):
        return 0, 0
    redactor = Redactor(secrets)
    _redact_value(value, redactor)
    return redactor.by_shape


def _texts(value: Json) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key.encode("utf-8", "surrogatepass")
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, int) and value.bit_length() <= 1024:
        yield str(value).encode()


def _redact_value(value: Json, redactor: Redactor) -> Json:
    if isinstance(value, str):
        return _redact_str(value, redactor)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 1024:
        shown = _redact_str(str(value), redactor)  # a secret of digits alone leaks as a number just as well
        return value if shown == str(value) else shown
    if isinstance(value, Mapping):
        clean: dict[str, Json] = {}
        again: Counter[str] = Counter()
        for key, item in value.items():
            clean[_free(_redact_str(key, redactor), clean, again)] = _redact_value(item, redactor)
        return clean
    if isinstance(value, (list, tuple)):
        return [_redact_value(item, redactor) for item in value]
    return value


def _free(name: str, taken: Mapping[str, Json], again: Counter[str]) -> str:
    """A key that no other has become. `again`: how often each was wanted, so that thousands that all become the same
    one (more secrets than have numbers) are neither tried from the first on nor made longer and longer."""
    free = name
    while free in taken:
        again[name] += 1
        free = f"{name}'{again[name]}" if again[name] > 1 else f"{name}'"
    return free


def _redact_str(text: str, redactor: Redactor) -> str:
    data = text.encode("utf-8", "surrogatepass")
    clean = redactor.finish(data)
    if clean == data:
        return text
    try:
        return clean.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return clean.decode("utf-8", "replace")  # a known value ended inside a character
