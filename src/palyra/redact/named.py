"""Values that their name calls secret: `PASSWORD=…`, `"client_secret": "…"`, `const apiKey: string = "…"`, `--token …`.

Rules: three tables and one matcher. A candidate is a name of a table with a separator behind it; the last part of the
name decides, in any case style. A value of the first table is secret, one of the second only if it looks so (values of
the third table are path segments: urls). Names stay, and so do stand-ins, types and expressions of source code.

Not here: names in URLs (urls), header fields (headers, fields), what a value must look like (judged_value).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from palyra.late import late
from palyra.redact.judged_value import Name, Row, is_secret_list, is_secret_text, is_secret_word
from palyra.redact.verdict import CONTEXT, OPEN, Hit, Swallow, Verdict, Window, line_end, swallow_run

KIND: Final = "named-value"

ROWS: Final = {
    **dict.fromkeys((b"pass", b"pwd", b"secret", b"otp", b"credential"), Row.ANY),
    **dict.fromkeys((b"token", b"bearer", b"jwt", b"csrf", b"xsrf", b"cookie", b"session", b"signature"), Row.LOOKS),
    b"key": Row.LOOKS,
    b"authorization": Row.ANY,  # as a pair or a list: else it is a header (headers)
}
"""Where a name of a table ends, in lower case; `pass` begins password, passwd, passphrase, passcode."""

_BEFORE_KEY = late(
    rb"(?:access|account|admin|aes|api|app|auth|client|crypt|cryption|deploy|encrypt|hmac|jwt|master|private|provider|"
    rb"root|secret|service|session|shared|sign|signing|storage|subscription|token|webhook)(?:[_.\- ]|%5f)?\Z",
    re.IGNORECASE,
)
_SUFFIX: Final = (
    rb"(?i:s|(?:[_-]?(?:base|value|val|text|plain|plaintext|raw|str|string|prod|production|dev|staging|test|live|old|new|"
    rb"current|previous|next|primary|secondary|b64|base64|hex|[0-9]{1,4}(?![0-9]))(?![a-z])))*"
)
_REST: Final = rb"(?i:(?<=pass)(?:word|wd|phrase|code|wort)|(?<=otp)[_-]?code|(?<=session)[_-]?(?:id|key)(?![a-z]))?"
_CLOSING: Final = rb"(?:\\{0,3}[\"'`])?\]?(?:\[[0-9]{0,4}\])?[?!]?"
_BEHIND = late(
    rb"(?P<rest>" + _REST + rb")(?P<suffix>" + _SUFFIX + rb")(?:"
    rb"(?P<close>" + _CLOSING + rb")(?:"
    rb"[ \t]{0,24}(?P<sign>=>|[:?+]=|={1,3}|!={1,2}|:(?!:))"
    rb"(?:[ \t]{0,24}|(?P<item>[ \t]{0,8}\r?\n[ \t]{0,24}-[ \t]{1,8}))"
    rb"|[ \t]{1,8}(?P<typed>string|String|\[\]byte|SecretStr)[ \t]{0,8}:?=[ \t]{0,8}"
    rb"|(?P<pair>,?)[ \t\r\n]{0,40}(?:\\{0,3}[\"'])?(?i:value)(?:\\{0,3}[\"'])?[ \t]{0,8}[:=][ \t]{0,8}"
    rb"|(?P<argument>,[ \t\r\n]{0,24})(?=\\{0,3}[\"'])"
    rb")|(?P<space>[ \t]{1,8})|(?P<element>>)"
    rb")(?=[^\s])(?!(?:[fF]alse|[tT]rue|null|None)[,}\]\s]|\"\"[^\"]|''[^']|\[\{)"
)
_NEXT: Final = frozenset(b"wpcoiksbvtrhdln_-0123456789\\\"'`]=:?![, \t\r\n>+")
"""What may stand right behind a word of the tables, in lower case."""
_ALL: Final = frozenset(range(256))
_BEFORE: Final = dict.fromkeys(ROWS, _ALL) | {
    b"key": frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_.- "),
}
_JUDGED: Final = 192
"""Bytes of a word that it is judged by."""
_LINES: Final = 16
"""Of a block, as many are looked at for a secret: blocks that begin in each other must cost linear time."""
_LARGEST_COUNT: Final = 999
"""A larger number may be a password or a code."""
_LOOK_BACK: Final = 40
"""Bytes before the table's word that belong to a name."""
_OPTION = late(rb"(?:\A|[\s\"'`=\[(,])--?[A-Za-z][\w-]*\Z|(?:\A|[\s\"'`=\[(,])--\Z")
_NEXT_OPTION = late(rb"\\{0,3}[\"']-")
_SETTING = late(rb"(?:\A|[\s;&|\"'])(?:ENV|setenv|export|set|login[ \t]+\S{1,30})[ \t]+\w*\Z")
_PARAMETER = late(rb"[;#][\w.~-]*\Z")
_TAG = late(rb"<(?:[\w-]+:)?[\w.-]*\Z")
_UPPER = late(rb"(?:\A|[^A-Za-z0-9_.])[A-Z0-9_]*\Z")
_SHELL_PLACE = late(rb"(?:\A|[^A-Za-z0-9_])(?:OLD)?\Z")
_LINE_BEGINS = late(rb"(?:\A|[\r\n])(?:[><|+-][ \t]?)?[\w.-]*\Z")

_OPENING = late(
    rb"(?:(?:Some|Ok|Secret|SecretStr|SecretBytes|SecretString|String::from|str|String)\([ \t]?)?[bBrRuUfF@$]{0,2}"
    rb"(?P<quote>\\{0,3}(?:\"\"\"|'''|[\"'`]))"
)
_SCHEME = late(rb"(?i:basic|bearer|token|apikey)[ \t]+")
_ANNOTATION = late(rb"[A-Za-z_&*\[][\w.:<>\[\]|?*& ,'\"]{0,80}?[ \t]*=(?![=>~])[ \t]*")
_BLOCK = late(rb"[|>][+-]?[0-9]?[+-]?[ \t]*(?:#[^\r\n]*)?\r?\n")
_BLOCK_LINE = late(rb"(?P<indent>[ \t]*)(?P<text>[^\r\n]*)(?P<end>\r?\n|\Z)")
_MAPPING = late(rb"[\w.-]+:(?:[ \t]|\Z)")
_WORD = late(rb"(?:[^\s\"'`\\<>&]|\\(?![nrtu\"'\\])|&(?![\w.-]+=|amp;))*")
_SHELL_WORD = late(rb"(?:[^\s\"'`\\]|\\(?![nrtu\"'\\])|['\"`](?=[\w]))*")
_PARAMETER_WORD = late(rb"[^\s\"'`\\&;?#<>]*+")
_TEXT_OF_ELEMENT = late(rb"[^<\r\n]*+")
_BEHIND_CLOSED = late(rb"[\s),.:;\]}]")
"""What stands behind a closed quote; in an odd apostrophe's line, no value begins with it."""
_UNTIL_QUOTE = {quote: swallow_run(late(b"[^" + quote + b"\r\n]*+")) for quote in (b'"', b"'", b"`")}
_UNTIL_SPACE = swallow_run(late(rb"[^\s\"'`]*+"))


class NamedValues:
    signs: Final = tuple(ROWS)
    words: Final = tuple(ROWS)

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        low = data.lower()
        return self.find_among(tuple(ROWS), data, low, pos)

    def find_among(self, words: Sequence[bytes], data: bytes, low: bytes, pos: int) -> Sequence[int]:
        """`words`: the only ones that are in `low`, the same text in lower case."""
        places, begin, size = [], max(0, pos - CONTEXT), len(data)
        for word in words:
            if word not in ROWS:
                continue
            at, before = low.find(word, begin), _BEFORE[word]
            while at >= 0:
                end = at + len(word)
                # Nearly always one of both says no.
                if end < size and low[end] in _NEXT and low[at - 1 if at else 0] in before:
                    found = _match(data, at, word)
                    if found is not None and found.end() >= pos:
                        places.append(found.end())
                at = low.find(word, end)
        return places

    def judge(self, window: Window) -> Verdict:
        name = _name_before(window.data, window.at)
        if name is None:
            return None
        return _judge(window, name)


def name_of(text: bytes) -> Name | None:
    """A name that stands alone, such as a key of an object, with its row; None where no table has it."""
    data = text[-CONTEXT:] + b'":"'
    return _name_before(data, len(data) - 1)


_IN_RECORDS = late(r"(?:session|signature|cookie)s?(?:_?id)?\Z", re.IGNORECASE)
"""Keys of records of ours, too: facts and plans must be kept as they were decided."""


@lru_cache(maxsize=1024)
def _row_of_key(key: str) -> Name | None:
    return name_of(key.encode("utf-8", "surrogatepass")[-_LOOK_BACK:])


def is_named_secret(key: str, value: object) -> bool:
    """Of a member of an object; a list goes as a whole."""
    if isinstance(value, bool) or not isinstance(value, (str, int, list, tuple)) or _IN_RECORDS.search(key):
        return False
    name = _row_of_key(key)
    if name is None:
        return _is_authorization(key) and isinstance(value, str) and looks_credential(value)
    if isinstance(value, (list, tuple)):
        return name.is_password and any(is_named_secret(key, item) for item in value)
    if isinstance(value, int):
        return name.row is Row.ANY and not name.is_plural and value > _LARGEST_COUNT
    return is_secret_text(name, value.encode("utf-8", "surrogatepass"))


def _is_authorization(key: str) -> bool:
    return key.lower() in ("authorization", "proxy-authorization")


def looks_credential(value: str) -> bool:
    """`Bearer …`, `Basic …`."""
    return _SCHEME.match(value.encode("utf-8", "surrogatepass")) is not None and "{" not in value and "$" not in value


def is_secret_argument(option: str, value: str) -> bool:
    """`--password`, and the argument behind it."""
    return option.startswith("--") and "=" not in option and value[:1] != "-" and is_named_secret(option, value)


def _name_before(data: bytes, at: int) -> Name | None:
    begin = max(0, at - CONTEXT)
    low = data[begin:at].lower()
    for word in ROWS:
        place = low.rfind(word)
        while place >= 0:
            found = _match(data, begin + place, word)
            if found is not None and found.end() == at:
                return _make_name(found, data, begin + place, word)
            place = low.rfind(word, 0, place + len(word) - 1)
    return None


def _match(data: bytes, at: int, word: bytes) -> re.Match[bytes] | None:
    """Behind a word of the table that begins at `at`: the end of the name, a separator, and before a value."""
    found = _BEHIND.match(data, at + len(word))
    if found is None or found.end() - at > CONTEXT - _LOOK_BACK:
        return None
    before = data[max(0, at - _LOOK_BACK) : at]
    if _row(word, before, data[at : at + 1], found["rest"].lower(), found) is None:
        return None
    return found if _is_separated(before, found, is_password=word == b"pass" and bool(found["rest"])) else None


def _make_name(found: re.Match[bytes], data: bytes, at: int, word: bytes) -> Name:
    before = data[max(0, at - _LOOK_BACK) : at]
    row = _row(word, before, data[at : at + 1], found["rest"].lower(), found)
    assert row is not None
    spelled = data[at : found.end("suffix")]
    return Name(
        row=row,
        end=found.end(),
        sign=found["sign"] or b"",
        is_plural=(spelled[-1:] in b"sS" and word != b"pass")
        or (word == b"pass" and found["suffix"][-1:] in (b"s", b"S")),
        is_password=word == b"pass",
        is_element=found["element"] is not None,
        is_item=found["item"] is not None,
        is_shell=_is_shell(before, spelled, found),
        is_parameter=_is_tight(found) and _PARAMETER.search(before) is not None,
        begins_line=_LINE_BEGINS.search(before) is not None,
    )


def _is_tight(found: re.Match[bytes]) -> bool:
    return found["sign"] == b"=" and found.end() == found.end("sign") and not found["close"]


def _is_shell(before: bytes, spelled: bytes, found: re.Match[bytes]) -> bool:
    """`NAME=value` without spaces, as shells and files of settings have it, or the value of an option."""
    if found["space"] is not None:
        return True
    in_upper_case = spelled == spelled.upper() and _UPPER.search(before) is not None
    return _is_tight(found) and (in_upper_case or (b"--" in before and _OPTION.search(before) is not None))


def _row(word: bytes, before: bytes, first: bytes, rest: bytes, found: re.Match[bytes]) -> Row | None:
    joined = before[-1:].isalpha() and not (first.isupper() and before[-1:].islower())
    if word == b"key":
        return Row.LOOKS if _BEFORE_KEY.search(before) else None
    if word == b"authorization":
        opens_list = found["sign"] == b":" and found.string[found.end() : found.end() + 1] == b"["
        return Row.ANY if found["pair"] is not None or opens_list else None
    if word == b"otp":
        return None if joined and before[-1:] not in b"tThH" else Row.ANY
    if word == b"pwd" and first == b"P" and _SHELL_PLACE.search(before):
        return None  # the shell's own PWD and OLDPWD
    if word == b"pass" and not rest:
        if joined or found["suffix"]:
            return None
        return Row.ANY if first == b"P" and before[-1:] == b"_" and _is_tight(found) else Row.LOOKS
    if word in (b"jwt", b"csrf", b"xsrf") and joined:
        return None
    return ROWS[word]


def _is_separated(before: bytes, found: re.Match[bytes], *, is_password: bool) -> bool:
    if found["space"] is not None:
        if found.string[found.end() : found.end() + 1] == b"-":
            return False  # the next option
        option = _OPTION.search(before) or _SETTING.search(before)
        return option is not None or (is_password and found.string[found.end() : found.end() + 1] in b"\"'`")
    if found["argument"] is not None:
        is_option = _NEXT_OPTION.match(found.string, found.end()) is not None
        return not is_option and b"--" in before and _OPTION.search(before) is not None
    if found["element"] is not None:
        return _TAG.search(before) is not None
    return found["item"] is None or found["suffix"][-1:] in (b"s", b"S")


def _judge(window: Window, name: Name) -> Verdict:
    data, at, stop = window.data, window.at, window.stop
    if name.is_element:
        return _judge_element(window, name)
    if name.sign == b":" and data[at : at + 1] in (b"|", b">") and _BLOCK.match(data, at, stop):
        return _judge_block(window, name, items=False)
    if name.is_item:
        return _judge_block(window, name, items=True)
    if data[at : at + 1] in name.opens and not data.startswith(b"[redacted:", at):
        return _judge_list(window, name)
    opening = _OPENING.match(data, at, stop)
    if opening is not None:
        return _judge_quoted(window, name, opening)
    end = line_end(window)
    if end is None:
        return OPEN
    typed = _ANNOTATION.match(data, at, end) if name.sign == b":" else None
    if typed is None:
        return _judge_word(window, name, at, end)
    opening = _OPENING.match(data, typed.end(), stop)
    if opening is not None:
        return _judge_quoted(window, name, opening)
    return _judge_word(window, name.with_sign(b"="), typed.end(), end)


def _judge_element(window: Window, name: Name) -> Verdict:
    """`<password>…</password>`"""
    data, at, stop = window.data, window.at, window.stop
    found = _TEXT_OF_ELEMENT.match(data, at, stop)
    end = found.end() if found else at
    if stop - end < 2 and not window.full:
        return OPEN
    if data[end : end + 2] != b"</" or not is_secret_text(name, data[at:end]):
        return None
    return Hit(kind=KIND, start=at, end=end)


def _judge_quoted(window: Window, name: Name, opening: re.Match[bytes]) -> Verdict:
    data, stop, quote, begin = window.data, window.stop, opening["quote"], opening.end()
    if _closes(data, window.at, opening):
        if begin == stop and not window.full:
            return OPEN
        if _BEHIND_CLOSED.match(data, begin, stop) is not None or begin == stop:
            return None
    is_long = len(quote.lstrip(b"\\")) == 3 or quote == b"`"
    if not is_long and stop - begin < 2 and not window.full and data[begin:stop] in (b"", quote[-1:]):
        return OPEN  # two quotes may become three
    limit = stop
    if not is_long and (end := line_end(window)) is not None:
        limit = end
    close = _closing(data, begin, limit, quote)
    if close < 0 and limit == stop and not window.full:
        return OPEN
    end = close if close >= 0 else limit
    if not is_secret_text(name, data[begin:end]):
        return None
    scheme = _SCHEME.match(data, begin, end)
    begin = scheme.end() if scheme else begin
    endless = end == stop and not window.ended
    return Hit(kind=KIND, start=begin, end=end, swallow=_UNTIL_QUOTE[quote[-1:]] if endless else None)


def _closes(data: bytes, at: int, opening: re.Match[bytes]) -> bool:
    """Return whether the quote ends what began before the name: `getpass('Password: ')`."""
    if opening.start("quote") != at or len(opening["quote"]) != 1:
        return False
    before = data[max(0, at - CONTEXT) : at]
    return before[before.rfind(b"\n") + 1 :].count(opening["quote"]) % 2 == 1


def _closing(data: bytes, begin: int, limit: int, quote: bytes) -> int:
    at = data.find(quote, begin, limit)
    while at > begin and data[at - 1] == 0x5C:
        at = data.find(quote, at + 1, limit)
    return at


def _judge_list(window: Window, name: Name) -> Verdict:
    """All behind the bracket goes: a list goes on behind its first value."""
    data, at, stop = window.data, window.at, window.stop
    close = data.find({b"[": b"]", b"(": b")", b"{": b"}"}[data[at : at + 1]], at, stop)
    if close < 0 and not window.full:
        return OPEN
    end = close if close >= 0 else stop
    inner = data[at + 1 : end]
    if not is_secret_list(name, inner):
        return None
    start, last = at + 1 + len(inner) - len(inner.lstrip()), at + 1 + len(inner.rstrip())
    endless = close < 0 and not window.ended
    return Hit(kind=KIND, start=start, end=stop if endless else last, swallow=_UNTIL_BRACKET if endless else None)


_UNTIL_BRACKET: Final[Swallow] = swallow_run(late(rb"[^\])}]*+"))


def _judge_block(window: Window, name: Name, *, items: bool) -> Verdict:
    """The lines of a YAML block scalar, or the items of its list, as far as they are indented."""
    data, stop = window.data, window.stop
    at = window.at
    if not items:
        header = _BLOCK.match(data, at, stop)
        assert header is not None
        at = header.end()
    start, end, indent, secret = -1, at, b"", False
    lines = 0
    while at < stop or start < 0:
        lines += 1
        if lines > _LINES and not secret:
            return None
        line = _BLOCK_LINE.match(data, at, stop)
        if line is None or (line["end"] == b"" and not window.full):
            return OPEN
        text = line["text"]
        if start < 0:
            if not text and line["end"]:
                at = line.end()
                continue
            if not items and not line["indent"]:
                return None
            indent, start = line["indent"], line.start("text")
        elif text and not (text.startswith(b"- ") if items else line["indent"].startswith(indent)):
            break
        if text:
            word = text[2:] if items and at != window.at else text
            is_mapping = items and _MAPPING.match(word) is not None
            secret = secret or (not is_mapping and is_secret_text(name, word.strip(b" \t\"'")))
            end = line.end("text")
        at = line.end()
        if not line["end"]:
            break
    else:
        if not window.full:
            return OPEN
    if not secret:
        return None
    return Hit(kind=KIND, start=start, end=end, swallow=_UNTIL_SPACE if end == stop and not window.ended else None)


def _judge_word(window: Window, name: Name, at: int, end: int) -> Verdict:
    data = window.data
    shape = _PARAMETER_WORD if name.is_parameter else _SHELL_WORD if name.is_shell else _WORD
    found = shape.match(data, at, min(end, at + _JUDGED))  # a flood of names on one line costs linear time
    stop = found.end() if found else at
    word = data[at:stop]
    bare = word if name.is_shell else word.rstrip(b",;)]}:.")
    if not bare or not is_secret_word(name, bare, word[len(bare) :] + data[stop : min(end, stop + _JUDGED)]):
        return None
    if stop == at + _JUDGED and (found := shape.match(data, at, end)) is not None:
        stop = found.end()
        bare = data[at:stop] if name.is_shell else data[at:stop].rstrip(b",;)]}:.")
    endless = stop == window.stop and not window.ended
    last = stop if endless else at + len(bare)
    return Hit(kind=KIND, start=at, end=last, swallow=_UNTIL_SPACE if endless else None)
