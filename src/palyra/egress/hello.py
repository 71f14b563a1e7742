"""A client's TLS hellos, judged: the first, and the second where the host asks for one.

Rules: a hello says which host is meant, unless the host is an address; the name must be one that the connection's own
host may go by. What the client sends behind its hello waits until the host has answered it, because a retry makes the
client say another hello, which is judged like the first. A hello with lines of text in it is cut into other records.

Not here: how a hello is read (egress/clienthello), when it is passed on (egress/conversation).
"""

from __future__ import annotations

import re

from palyra.egress.clienthello import ALERT, APPLICATION, CHANGE_CIPHER, HandshakeReader, is_retry, read_hello
from palyra.egress.grammar import Malformed, Target
from palyra.egress.terms import Refused, Terms

_TEXT = re.compile(rb"[\r\n][\0\t ]*[A-Za-z]{4}")
"""`RCPT TO:<a@b>` in an extension: a mail server steps over what stands around it. By chance in one hello of fifty."""
_LINES = re.compile(rb"(?<=[\r\n])")


class HelloTalk:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._reader = HandshakeReader()

    def is_judged(self, inbox: bytearray, target: Target, *, eof: bool, needs_name: bool = True) -> bool:
        """Whole, and of this host; False: more bytes are needed. Raises `Malformed` and `Refused`.

        `needs_name` False: the host has shown that it speaks a protocol that names none, and clients leave it out.
        """
        hello = read_hello(self._reader, inbox)
        if hello is None:
            if eof:
                raise Malformed("the connection ended in the middle of a TLS hello")
            return False
        if hello.name is None and needs_name and not target.is_literal:
            raise Malformed("the TLS hello does not say which host is meant (no SNI)")
        if hello.name is not None:
            named = Target(hello.name, target.port)
            if not self._terms.may_name(target, named):
                raise Refused(named, f"TLS names {named}, the connection was made to {target}")
        return True

    def take(self, inbox: bytearray) -> bytes:
        """The hello that was judged, out of the inbox; what is read next is the host's answer."""
        hello = bytes(inbox[: self._reader.end])
        if _TEXT.search(hello):
            hello = _cut_anew(hello[:3], self._reader.read(inbox) or b"")
        del inbox[: self._reader.end]
        self._reader = HandshakeReader(skips=(ALERT,))
        return hello

    def is_asked_again(self, answer: bytearray) -> bool | None:
        """Whether the host wants another hello, which is then read next; None: more bytes are needed. Raises `Refused`
        for an answer that is not TLS."""
        again = is_retry(self._reader, answer)
        if again:
            self._reader = HandshakeReader(skips=(CHANGE_CIPHER, APPLICATION))
        return again


def _cut_anew(start: bytes, message: bytes) -> bytes:
    """The message in records of which each ends with a line, so that every line begins with binary. TLS signs the
    message, and leaves the records to whoever sends it."""
    records = bytearray()
    for line in _LINES.split(message):
        at = 0
        while at < len(line):
            size = min(len(line) - at, 255)
            size -= size in b"\r\n"  # a length is not the end of a line either
            records += start + bytes((0, size)) + line[at : at + size]
            at += size
    return bytes(records)
