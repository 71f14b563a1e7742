"""Texts and JSON values with every secret in them replaced, keys and numbers included.

Nearly every value holds none, so the first question is always whether there is anything to do at all; only then is a
value taken apart and made again.

Not here: how secrets are found and what stands in their place (stream).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import orjson

from palyra.canon import Json
from palyra.redact.logins import is_login
from palyra.redact.named import is_named_secret, is_secret_argument
from palyra.redact.stream import Redactor, Secrets, candidates


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
    if redactor.finish(whole) == whole and not _has_named(value):
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
    return not candidates(data, 0)


def _has_named(value: Json) -> bool:
    if isinstance(value, Mapping):
        return bool(_named_values(value)) or any(map(_has_named, value.values()))
    if isinstance(value, (list, tuple)):
        return bool(_secret_arguments(value)) or any(map(_has_named, value))
    return False


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
        named = _named_values(value)
        for key, item in value.items():
            shown = _redact_named(item, redactor) if key in named else _redact_value(item, redactor)
            clean[_free(_redact_str(key, redactor), clean, again)] = shown
        return clean
    if isinstance(value, (list, tuple)):
        secret = _secret_arguments(value)
        return [
            _redact_named(item, redactor) if at in secret else _redact_value(item, redactor)
            for at, item in enumerate(value)
        ]
    return value


def _named_values(value: Mapping[str, Json]) -> frozenset[str]:
    """Keys whose values are secret by what the keys are called, or by `"name": …` right before `"value": …`."""
    found = {key for key, item in value.items() if is_named_secret(key, item)}
    for (_, name), (key, item) in pairwise(value.items()):
        if key.lower() == "value" and isinstance(name, str) and is_named_secret(name, item):
            found.add(key)
    return frozenset(found)


def _secret_arguments(value: Sequence[Json]) -> frozenset[int]:
    """Places of arguments that the one before calls secret: `--password VALUE`, `curl -u user:password`."""
    return frozenset(
        at
        for at, (before, item) in enumerate(pairwise(value), 1)
        if isinstance(before, str)
        and isinstance(item, str)
        and before.startswith("-")
        and (is_secret_argument(before, item) or is_login(before, item, by_curl="curl" in value[:at]))
    )


def _redact_named(value: Json, redactor: Redactor) -> Json:
    if isinstance(value, (list, tuple)):
        return [_redact_named(item, redactor) for item in value]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return _redact_value(value, redactor)
    shown = _redact_value(value, redactor)  # a known value keeps its own name
    return redactor.replace(str(value)) if shown == value else shown


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
