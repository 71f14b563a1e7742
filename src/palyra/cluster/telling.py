"""What a call's sink was told of a node's output, so that a second run of it is not told twice. Pure.

Rules: a program that is run anew says the same as before or has no second telling; a node that sends more than the call
may have is not believed; at the end what came is what was signed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from palyra.errors import TrustError
from palyra.launch.executor import Sink
from palyra.model.outcome import StreamName


class OtherTelling(Exception):
    """The second telling is not the first one's."""


@dataclass(slots=True)
class Told:
    """What the sink was given, so that a second run is not told twice."""

    sink: Sink
    whole: dict[StreamName, bytearray] = field(default_factory=lambda: {name: bytearray() for name in StreamName})
    at: dict[StreamName, int] = field(default_factory=lambda: dict.fromkeys(StreamName, 0))
    most_bytes: int = 0
    """Of both streams: what the plan allows. A node that sends more is not doing what it was told."""

    def again(self) -> None:
        self.at = dict.fromkeys(StreamName, 0)

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        whole, at = self.whole[stream], self.at[stream]
        old = min(len(chunk), len(whole) - at)
        if bytes(whole[at : at + old]) != chunk[:old]:
            raise OtherTelling
        self.at[stream] += len(chunk)
        if sum(self.at.values()) > self.most_bytes:
            raise TrustError("The node sent more output than the call may have.")
        if fresh := chunk[old:]:
            whole += fresh
            self.sink.feed(stream, fresh)

    def check_end(self, stdout_sha256: str, stderr_sha256: str) -> None:
        for stream, sha256 in ((StreamName.STDOUT, stdout_sha256), (StreamName.STDERR, stderr_sha256)):
            if self.at[stream] != len(self.whole[stream]):
                raise OtherTelling
            if hashlib.sha256(self.whole[stream]).hexdigest() != sha256:
                raise TrustError("The output received is not the output that was signed.")
