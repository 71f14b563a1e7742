"""Programs that only read, whatever their arguments: calls of them may go beside each other.

A program is here when no option of it writes a file, runs another program or changes the system. `sort -o`, `find
-delete`, `sed -i`, `uniq IN OUT`, `xxd IN OUT`, `rg --pre`, `tree -o`, `git` (which writes its index even to look) are
why theirs are not. This decides who waits for whom and nothing else: no promise of the sandbox rests on it.
"""

from __future__ import annotations

READERS = frozenset(
    "base64 basename cat cksum cmp comm cut diff dirname du echo egrep expand expr factor false fgrep fmt fold grep"
    " head id jq join ls md5sum nl nproc od paste printf pwd readlink realpath rev seq sha1sum sha256sum sha512sum"
    " sleep stat sum tac tail test tr true tsort uname unexpand wc which whoami zcat".split()
)


def only_reads(program: str) -> bool:
    """`program`: the normalised name of what is really started."""
    return program in READERS
