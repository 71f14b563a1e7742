"""Which arguments are texts and not paths: a jq filter may hold slashes, the file beside it may not lead out."""

from __future__ import annotations

import pytest

from palyra.guard.texts import text_arguments


@pytest.mark.parametrize(
    ("args", "texts"),
    [
        ((".a/.b", "file.json"), {0}),
        (("-r", ".a", "file.json"), {1}),
        (("--arg", "name", "/x/", ".a", "file"), {1, 2, 3}),
        (("--argjson", "name", "1", ".a", "file"), {1, 2, 3}),
        (("--slurpfile", "name", "/etc/x", ".a"), {3}),
        (("--rawfile", "name", "/etc/x", ".a"), {3}),
        (("--indent", "2", ".a"), {2}),
        (("--tab", ".a"), {1}),
        (("-L", "/lib", ".a"), {2}),
        (("-f", "filter.jq", "file"), set()),
        (("--from-file", "filter.jq", "file"), set()),
        (("-ffilter.jq", "file"), set()),
    ],
)
def test_of_jq_the_filter_is_a_text_and_files_are_not(args: tuple[str, ...], texts: set[int]) -> None:
    assert text_arguments("jq", args)[0] == texts
