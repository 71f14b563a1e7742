"""Whether the value behind a telling name is a secret, or a stand-in, a type, an expression or a word of prose.

Rules: a quoted value is text, so nearly all of one is secret behind a name of the first table. An unquoted one may be
source code: calls, attributes, types and names of other variables stay. A value *looks secret* if it has 16 letters of
a token or more, or 6 with a letter and a digit, and is no number, path, name or version.

Not here: which names tell, and where a value ends (named).
"""

from __future__ import annotations

import re
from enum import Enum
from itertools import islice
from typing import Final

from palyra.late import late
from palyra.redact.verdict import STAND_IN
from palyra.values import change, dataclass


class Row(Enum):
    """Which of the tables has a name."""

    ANY = "any value"
    LOOKS = "a value that looks secret"
    NAMED = "a value of a URL that is no number, path or name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A telling name with what stands between it and its value."""

    row: Row
    end: int
    """Where the value begins."""
    sign: bytes = b""
    is_plural: bool = False
    is_password: bool = False
    is_element: bool = False
    is_item: bool = False
    is_shell: bool = False
    """The value is text up to the next space, never source code."""
    is_parameter: bool = False
    """`;name=value` or `#name=value`, as in URLs."""
    begins_line: bool = False

    @property
    def opens(self) -> tuple[bytes, ...]:
        """The brackets that a list of secrets opens with."""
        if self.is_plural:
            return (b"[", b"(", b"{") if self.is_password else (b"[", b"(")
        return (b"[",)

    def with_sign(self, sign: bytes) -> Name:
        return change(self, sign=sign)


_STEM: Final = (
    rb"pass(?:word|wd|phrase|code|wort)?|pwd|secret|otp|credential|token|bearer|jwt|csrf|cookie|session|signature|key|"
    rb"apikey|auth|authorization"
)
_NAMES_ITSELF = late(rb"(?:\A|[^A-Za-z])(?:" + _STEM + rb")s?(?![A-Za-z])", re.IGNORECASE)
_HAS_STEM = late(_STEM, re.IGNORECASE)
_TEMPLATE = late(
    rb"\$\{|\$\(|\{\{|\{%|#\{|%\{|\{\}|\{[A-Za-z_][\w.!:\[\]()]*\}|%[sdrv]\b|%\([a-z_]+\)s|<[A-Za-z_][\w .|-]*>|\$\$"
)
_VARIABLE = late(rb"[$%@&*][A-Za-z_]\w*%?(?:(?:->|\.|::|\[)\S*)?|\$[0-9@*#?]|![A-Z]\w*|@\{.*|\$\{.*|\$\(.*|\{.*|%\(.*")
_PLACEHOLDER = late(
    rb"your[-_ ].*|<.*>?|\[redacted.*|include|omit|same-origin|to-?do\b.*|fixme.*|x{3,}|\.{2,}.*|[*\xe2\x80\xa2.-]+|"
    rb"redacted|hidden|placeholder|undefined|nil|null|none|nan|void|n/a|optional|required|string|str|text|bytes|bool|boolean|"
    rb"int|integer|number|object|array|any|function|inherit|default|enabled|disabled|unset|empty|missing|unknown|invalid|"
    rb"hidden|input|true|false|on|off|env|file|prompt|ask|auto|manual|self|this|value|data|always|never|basic",
    re.IGNORECASE | re.DOTALL,
)
_STANDS_FOR = late(
    rb"your[-_].*|<.*|\[redacted.*|(?:id|type|src|env|source|target)=.*|[A-Z]*(?:PASSWORD|SECRET|PASS|PASSPHRASE|VALUE)\]?"
)
_PROSE = late(
    rb"and|or|options?|is|are|to|for|the|from|in|on|with|as|flags?|arguments?|must|can|was|will|instead|when|if"
)
_ENV_NAME = late(rb"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_NUMBER = late(rb"[-+]?(?:[0-9][0-9_]*(?:\.[0-9]+)*(?:e[-+]?[0-9]+)?|0x[0-9a-fA-F]{1,8})[a-zA-Z%]{0,2}")
_URL = late(rb"[a-z][a-z0-9+.-]*:(?://|\\/\\/).*|arn:.*|data:.*|urn:.*", re.IGNORECASE)
_PATH = late(
    rb"(?:~|\.{1,2}|[A-Za-z]:)?(?=[^a-z]{0,40}[a-z])(?:[/\\]{1,2}[\w.@ -]+){2,16}[/\\]?|"
    rb"(?:[\w.-]+/)+[\w-]+\.[a-z]{1,5}|\.{0,2}/[\w.-]+/?"
)
_FILE = late(
    rb"[\w./@-]+\.(?:py|js|ts|tsx|jsx|json|ya?ml|toml|txt|md|pem|crt|key|pub|go|rs|c|h|cc|cpp|java|rb|php|html?|css|"
    rb"sh|xml|cfg|conf|ini|env|lock|sock|db|log)(?::[0-9:]+)?"
)
_PUBLIC = late(
    rb"(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+|sk-ssh-\S+) |-----BEGIN (?:[A-Z]+ )*(?:PUBLIC|CERT)|pk_(?:test|live)_"
)
_VERSION = late(rb"#[0-9a-fA-F]{3,8}|v?[0-9]+(?:\.[0-9]+)+[\w.+-]*|[0-9]{1,4}[-/:.][0-9]{1,2}[-/:.].*")

_WORDS = late(rb"[A-Za-z\x80-\xff]+(?:[-_'/. ][A-Za-z\x80-\xff]+)*[.?!:,]*")
_LETTERS = late(rb"[A-Za-z_$\x80-\xff][\w\x80-\xff]*")
_ATTRIBUTE = late(
    rb"[&*!~+-]*(?:await |new |typeof )?[A-Za-z_$]\w*[?!]?(?:(?:\.|->|::|\?\.)[A-Za-z_$]\w*[?!]?)+(?:[(\[{<].*)?"
)
_CALL = late(rb"[&*!~+-]*[A-Za-z_$][\w.:>$-]*[!?]?[(\[{<].*", re.DOTALL)
_CODE_SIGN = late(rb"[(\[{|<]|\\$|[&*][a-z_]|&&|\|\|")
_TYPE = late(
    rb"[&*]*(?:'[a-z]+ )?(?:const |mut )?(?:str|string|String|bytes|bytearray|int|bool|float|object|Any|Text|Buffer|"
    rb"Bytes|any|"
    rb"unknown|never|char|byte|Optional|Union|Literal|List|Dict|None|NoneType|Uint8Array|Promise|Callable|Vec|Option|Self|"
    rb"typing|t|number|boolean|void|varchar|VARCHAR|TEXT|text|Final|ClassVar|Annotated|Mapping|Sequence|Type|type|T)\b[^0-9]*"
)
_HUMPS = late(rb"[A-Z][a-z]+[0-9]{0,5}(?:[A-Z][a-z]+[0-9]*)+")
_STATEMENT = late(
    rb"(?:await|new|not|lambda|if|else|for|in|is|and|or|async|yield|return|function|func|fn|def|self|this|cls|super|null|undefined|"
    rb"os|process|input|getpass|config|settings|args|options|opts|params|kwargs|request|req|res|response|env|ctx|props|state|"
    rb"result|value|val|data|obj|item|text|name|user|username|raw|b|s|k|v|p|x|t)\b",
)
_TOKEN = late(rb"[A-Za-z0-9+/=_.~:|!@#$%^*?-]{6,}")
_NAMED_NUMBER = late(
    rb"(?:[A-Za-z]+[-_.])*(?:sha|md|base|utf|ascii|latin|iso|rsa|aes|hs|rs|es|ps|oauth|http|ipv|x|py|python|v|ed|cp|p|win|int|uint|"
    rb"float|amd|arm|i|ml|key|token|test_?|session|secret|user|id|step|group|item|arg|param)[-_]?[0-9]{1,5}(?:[-_./][A-Za-z0-9]{1,8})?",
    re.IGNORECASE,
)
_LONG: Final = 16
_JUDGED: Final = 256
"""Bytes of a value that are looked at: a flood of long values must cost linear time."""
_ITEMS: Final = 16
"""Of a list, as many are looked at: one of them decides for all."""
_LONGEST_NUMBER_NOT_SECRET: Final = 3


def looks_secret(text: bytes, *, is_text: bool) -> bool:
    """`is_text`: it cannot be a name of source code, as between quotes."""
    text = text[:_JUDGED]
    if _TOKEN.fullmatch(text) is None or _is_ordinary(text) or _NAMED_NUMBER.fullmatch(text):
        return False
    digits, letters = _count(text)
    if digits and letters:
        if not is_text and (_ATTRIBUTE.fullmatch(text) or _LETTERS.fullmatch(text)):
            return _is_random(text) and _HUMPS.fullmatch(text) is None
        return True
    if len(text) < _LONG or not letters or (_WORDS.fullmatch(text) and (not is_text or not text.isalpha())):
        return False
    return _HAS_STEM.search(text) is None


def _count(text: bytes) -> tuple[int, int]:
    digits = sum(48 <= sign < 58 for sign in text)
    return digits, sum(chr(sign).isalpha() for sign in text if sign < 128)


def _is_random(text: bytes) -> bool:
    """A name of source code has a digit at its end or two, not here and there."""
    return (
        len(re.findall(rb"[0-9]+", text)) >= 3
        or (b"_" not in text and re.search(rb"[0-9][A-Za-z_]", text) is not None)
        or (b"_" not in text and re.search(rb"[0-9]{3}", text) is not None)
    )


def _is_ordinary(text: bytes) -> bool:
    return any(
        shape.fullmatch(text) is not None
        for shape in (STAND_IN, _PLACEHOLDER, _ENV_NAME, _NUMBER, _URL, _PATH, _FILE, _VERSION, _VARIABLE)
    )


def is_stand_in(text: bytes) -> bool:
    text = text[:_JUDGED]
    return (
        any(shape.fullmatch(text) for shape in (STAND_IN, _VARIABLE, _PLACEHOLDER))
        or _TEMPLATE.search(text) is not None
    )


def is_secret_parameter(row: Row, value: bytes) -> bool:
    """Of a parameter in the query of a URL."""
    if row is Row.LOOKS:
        return looks_secret(value, is_text=True)
    return row is Row.ANY or not is_stand_in(value)


_SEGMENT_STAYS = late(rb"[A-Za-z]*[0-9]{1,2}|v?[0-9.]+|[0-9]+|.*\.[A-Za-z][A-Za-z0-9]{0,5}|[0-9]{4}-.*")


def is_secret_segment(value: bytes) -> bool:
    """Of the segment behind a telling one; names of files, versions and numbers stay."""
    return (
        looks_secret(value, is_text=True)
        and _SEGMENT_STAYS.fullmatch(value) is None
        and _count(value)[0] > 0
        and not is_stand_in(value)
        and _is_random(value)
    )


def is_secret_text(name: Name, text: bytes) -> bool:
    """Of a quoted value, a line of a block, the text of an element."""
    bare = text[:_JUDGED].strip()
    if not bare or STAND_IN.fullmatch(bare) or _PUBLIC.match(bare) or _TEMPLATE.search(bare):
        return False
    if name.row is Row.LOOKS:
        return looks_secret(bare, is_text=True)
    if bare.isdigit():
        return True
    if not any(48 <= sign < 58 or 65 <= sign & 0xDF < 91 or sign > 127 for sign in bare):
        return len(bare) > _LONGEST_NUMBER_NOT_SECRET and _PLACEHOLDER.fullmatch(bare) is None
    if _WORDS.fullmatch(bare) and _NAMES_ITSELF.search(bare):
        return False
    shapes = (_PLACEHOLDER, _ENV_NAME, _URL, _PATH, _FILE, _VARIABLE)
    return not any(shape.fullmatch(bare) for shape in shapes)


def is_secret_word(name: Name, word: bytes, rest: bytes) -> bool:
    """Of an unquoted value; `rest` is what follows it on its line."""
    word, rest = word[:_JUDGED], rest[:_JUDGED]
    if name.sign == b":" and word[:1] == b"!" and word[1:2].isalpha():
        return False  # a tag of YAML
    if STAND_IN.fullmatch(word) or _VARIABLE.fullmatch(word) or _TEMPLATE.search(word) or _PUBLIC.match(word + rest):
        return False
    if name.is_shell:
        if name.row is Row.LOOKS:
            return looks_secret(word, is_text=True)
        stays = (_ENV_NAME, _URL, _PATH, _STANDS_FOR, _PROSE)
        return not any(shape.fullmatch(word) for shape in stays) and any(chr(sign).isalnum() for sign in word)
    if name.sign in (b"==", b"===", b"!=", b"!==", b"=>", b"+="):
        return False
    if _is_code(word, rest) or (name.sign == b":" and _TYPE.fullmatch(word)):
        return False
    if name.row is Row.LOOKS:
        return looks_secret(word, is_text=False)
    if word.isdigit():
        return len(word) > _LONGEST_NUMBER_NOT_SECRET and not name.is_plural
    if _is_ordinary(word):
        return False
    if _LETTERS.fullmatch(word) or _WORDS.fullmatch(word):
        return _is_lone_word(name, word, rest)
    return _count(word)[1] > 0


def _is_code(word: bytes, rest: bytes) -> bool:
    return (
        _CALL.fullmatch(word) is not None
        or (_ATTRIBUTE.fullmatch(word) is not None and not (len(word) >= _LONG and _is_random(word)))
        or _CODE_SIGN.search(word) is not None
        or word[:1] in b"=,;"
        or rest[:1] in (b"(", b"[")
    )


def _is_lone_word(name: Name, word: bytes, rest: bytes) -> bool:
    """Letters alone are a variable or prose, unless they are all there is, in a place of settings."""
    if _HAS_STEM.search(word):
        return False
    if any(48 <= sign < 58 for sign in word):
        return rest[:1] not in b",)" or not rest or _is_random(word)
    behind = rest.strip()
    if behind and not behind.startswith((b"#", b"//")) and behind not in (b",", b"}"):
        return False
    if name.sign == b":":
        return not (
            _TYPE.fullmatch(word) or _HUMPS.fullmatch(word) or _STATEMENT.match(word) or behind == b"," or b"_" in word
        )
    return name.begins_line and rest[:1] not in (b",", b")") and not _STATEMENT.match(word)


_ITEM = late(rb"\\{0,3}(?P<quote>[\"'`])(?P<text>[^\"'`]*)(?P=quote)")
_BARE_ITEM = late(rb"[^\s,\[\](){}\"'`]+")


def is_secret_list(name: Name, inner: bytes) -> bool:
    """Of what stands between the brackets."""
    inner = inner[: 2 * _JUDGED]
    quoted = [found["text"].rstrip(b"\\") for found in islice(_ITEM.finditer(inner), _ITEMS)]
    if quoted:
        return any(is_secret_text(name, text) for text in quoted)
    if name.sign != b":":
        return False
    words = [found.group() for found in islice(_BARE_ITEM.finditer(inner), _ITEMS)]
    return any(_count(word)[0] and looks_secret(word, is_text=False) for word in words)
