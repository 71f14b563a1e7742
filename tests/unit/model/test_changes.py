"""Two looks at a workspace, compared: what is new, different and gone, and nothing that was merely not seen."""

from __future__ import annotations

from palyra.canon import digest
from palyra.model.changes import MAX_LISTED, Changes, Snapshot, compare

FILE, OTHER, FOLDER = (0o100644, 1), (0o100644, 2), (0o040755, 3)


def test_what_is_new_different_and_gone_is_told() -> None:
    before = Snapshot(folders={"": {"a": FILE, "b": FILE, "old": FOLDER}, "old": {"c": FILE}})
    after = Snapshot(folders={"": {"a": OTHER, "b": FILE, "new": FOLDER}, "new": {"d": FILE}})
    assert compare(before, after) == Changes(created=("new", "new/d"), modified=("a",), deleted=("old", "old/c"))


def test_a_folder_that_only_one_look_reached_is_not_called_deleted() -> None:
    both = {"": {"big": FOLDER}}
    before = Snapshot(folders={**both, "big": {"a": FILE}})
    assert compare(before, Snapshot(folders=both, whole=False)) == Changes(complete=False)
    assert compare(Snapshot(folders=both, whole=False), before) == Changes(complete=False)


def test_a_file_in_place_of_a_folder_is_modified() -> None:
    before = Snapshot(folders={"": {"x": FOLDER}, "x": {"y": FILE}})
    assert compare(before, Snapshot(folders={"": {"x": FILE}})) == Changes(modified=("x",))


def test_a_long_list_is_cut_and_its_digest_is_of_all() -> None:
    paths = tuple(f"{number:04}" for number in range(MAX_LISTED + 5))
    told = Changes(created=paths).as_json()
    assert told == {
        "created": list(paths[:MAX_LISTED]),
        "modified": [],
        "deleted": [],
        "counts": {"created": MAX_LISTED + 5, "modified": 0, "deleted": 0},
        "complete": True,
        "sha256": digest({"created": list(paths), "modified": [], "deleted": []}),
    }
