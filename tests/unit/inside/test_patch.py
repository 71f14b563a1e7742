"""Unified diffs: what they make of a file, byte for byte, and what is refused."""

from __future__ import annotations

import difflib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.inside import patch
from palyra.inside.beneath import Refused

SIMPLE = b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


def applied(text: bytes, content: bytes) -> bytes:
    (one,) = patch.parse(text)
    return patch.apply(content, one)[0]


def names(text: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(one.old, one.new) for one in patch.parse(text)]


def code(text: bytes, content: bytes = b"") -> str:
    with pytest.raises(Refused) as caught:
        applied(text, content)
    return caught.value.code


def test_a_hunk_replaces_its_lines():
    assert applied(SIMPLE, b"a\nb\nc\n") == b"a\nB\nc\n"


def test_a_hunk_that_moved_is_found_and_the_distance_told():
    (one,) = patch.parse(SIMPLE)
    assert patch.apply(b"1\n2\n3\na\nb\nc\n", one) == (b"1\n2\n3\na\nB\nc\n", [3])


def test_the_nearest_of_two_places_counts():
    assert applied(SIMPLE, b"a\nb\nc\nx\nx\na\nb\nc\n") == b"a\nB\nc\nx\nx\na\nb\nc\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a\nX\nc\n", "Hunk 1 of x does not match: line 2 differs from the patch."),
        (b"a\r\nb\r\nc\r\n", "Hunk 1 of x does not match: line 1 ends differently (CRLF, or no newline)."),
        (b"a\nb\nc", "Hunk 1 of x does not match: line 3 ends differently (CRLF, or no newline)."),
        (b"a\n", "Hunk 1 of x does not match: the file is shorter."),
        (b"", "Hunk 1 of x does not match: the file is shorter."),
    ],
)
def test_a_mismatch_names_file_hunk_and_line(content: bytes, sentence: str):
    (one,) = patch.parse(SIMPLE)
    with pytest.raises(Refused) as caught:
        patch.apply(content, one)
    assert (caught.value.code, caught.value.message) == ("PATCH_FAILED", sentence)
    assert caught.value.where["hunk"] == 1


def test_crlf_lines_are_kept_as_they_are():
    text = b"--- a/x\r\n+++ b/x\r\n@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+B\r\n"
    assert applied(text, b"a\r\nb\r\n") == b"a\r\nB\r\n"


def test_a_missing_newline_at_the_end_is_added_and_taken_away():
    adds = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"
    takes = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"
    both = b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file\n"
    assert applied(adds, b"a") == b"a\n"
    assert applied(takes, b"a\n") == b"a"
    assert applied(both, b"a\nb") == b"A\nb"


def test_lines_are_never_glued_together_where_the_file_has_no_newline_at_its_end():
    assert code(b"--- a/x\n+++ b/x\n@@ -1,0 +2 @@\n+b\n", b"a") == "PATCH_FAILED"


def test_new_deleted_and_renamed_files():
    made = b"--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"
    gone = b"--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    renamed = b"diff --git a/p b/q\nsimilarity index 100%\nrename from p\nrename to q\n"
    empty = b"diff --git a/e b/e\nnew file mode 100755\nindex 0000000..e69de29\n"
    assert names(made + gone + renamed + empty) == [(None, b"new"), (b"old", None), (b"p", b"q"), (None, b"e")]
    assert patch.parse(empty)[0].mode == 0o755


def test_quoted_names_are_read_as_git_writes_them():
    text = b'--- "a/\\303\\244\\tb"\n+++ "b/\\303\\244\\tb"\n@@ -1 +1 @@\n-a\n+b\n'
    assert names(text) == [("ä\tb".encode(),) * 2]


def test_time_stamps_behind_names_are_left_out():
    assert names(SIMPLE.replace(b"a/x\n", b"a/x\t2024-01-01 00:00:00 +0000\n")) == [(b"x", b"x")]


def test_a_removed_line_that_looks_like_a_header_is_a_removed_line():
    text = b"--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n--- /etc/passwd\n++++ b/y\n-c\n"
    (one,) = patch.parse(text)
    assert (one.old, one.new, one.hunks[0].old) == (b"x", b"x", [b"-- /etc/passwd\n", b"c\n"])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"just words\n",
        b"@@ -1 +1 @@\n-a\n+b\n",
        b"--- a/x\n+++ b/x\n",
        b"--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a\n",
        b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n-b\n",
        b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n?a\n",
        b"--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n",
        b"--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n",
        b"diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc/passwd\n",
        b"diff --git a/x b/x\nnew file mode 160000\n",
        b"diff --git a/x b/x\nold mode 100644\nnew mode 104755\n",
        b"diff --git a/x b/y\ncopy from x\ncopy to y\n",
        b"diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 0\n",
        b"diff --git a/x b/y\nrename from x\n",
        b"diff --git nonsense\n",
        SIMPLE + SIMPLE,
        b"".join(b"--- a/%d\n+++ b/%d\n@@ -1 +1 @@\n-a\n+b\n" % (n, n) for n in range(200)),
    ],
)
def test_what_is_no_sound_patch_is_refused(text: bytes):
    with pytest.raises(Refused) as caught:
        patch.parse(text)
    assert caught.value.code == "BAD_PATCH"


LINES = st.lists(
    st.sampled_from(["a", "b", "", "--- x", "+++ y", "@@ -1 +1 @@", "\\ No newline", " s", "é\r"]), max_size=12
)


@given(before=LINES, after=LINES, context=st.integers(0, 4), newline=st.booleans())
def test_what_a_diff_says_is_what_comes_out(before: list[str], after: list[str], context: int, newline: bool):
    old = "".join(f"{line}\n" for line in before)
    new = "".join(f"{line}\n" for line in after)
    if not newline:
        old, new = old.removesuffix("\n"), new.removesuffix("\n")
    made = difflib.unified_diff(old.split("\n"), new.split("\n"), "a/f", "b/f", lineterm="", n=context)
    lines = list(made)
    if not lines:
        return
    # difflib splits at every newline, so both sides end in an empty line of no bytes: say so as diff does
    text = "\n".join(lines) + "\n"
    whole_old, whole_new = old + "\n", new + "\n"
    assert applied(text.encode(), whole_old.encode()) == whole_new.encode()


@given(text=st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_patch_or_a_refusal(text: bytes):
    for head in (b"", b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n", b"diff --git a/x b/x\n"):
        with suppress(Refused):
            for one in patch.parse(head + text):
                patch.apply(b"a\nb\nc\n", one)
