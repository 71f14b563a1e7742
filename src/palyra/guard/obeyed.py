"""Files that other programs obey, and names that hide which file they mean: written by the file tools only when asked.

A list and its comparison. Names count anywhere in a workspace, in any letter case, because some file systems fold case,
drop letters that no font draws and dots at the end. Pure. Not here: names that stay closed altogether (protected), who
asks (policy, `guard.75-file-others-obey`).
"""

from __future__ import annotations

import unicodedata
from itertools import pairwise

from palyra.guard.protected import BUILD_SERVICES, PROTECTED_NAMES
from palyra.model.visible import visible_line

OBEYED_NAMES = frozenset(
    """
    .hgrc .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js bunfig.toml .gdbinit .lldbinit .bazelrc
    .buckconfig .dir-locals.el .dir-locals-2.el .envrc .direnvrc .condarc .pypirc pip.conf .netrc .curlrc .wgetrc
    .inputrc .bashrc .bash_profile .bash_login .profile .zshrc .zshenv .zprofile .zlogin .vimrc .nvimrc .emacs
    .screenrc .tmux.conf .sqliterc .psqlrc .irbrc .pryrc .pythonrc .pdbrc .perltidyrc .gitconfig .gitmodules
    claude.md claude.local.md agents.md agents.override.md agent.md gemini.md copilot-instructions.md .cursorrules
    .windsurfrules .clinerules .roorules .goosehints .rules warp.md
    .ghci .ocamlinit .erlang .iex.exs .rprofile .renviron .octaverc .gemrc uv.toml nuget.config
    cloudbuild.yaml cloudbuild.yml cloudbuild.json buildspec.yml buildspec.yaml
    """.split()
)
"""Package managers, debuggers, shells, editors, agents and build services read them in the folder they work in."""
OBEYED_IN = {
    ".hg": frozenset({"hgrc", "hgrc-not-shared"}),
    ".bundle": frozenset({"config"}),
    ".mvn": frozenset({"extensions.xml", "jvm.config", "maven.config"}),
    ".cargo": frozenset({"config", "config.toml"}),
    ".config": frozenset({"pip", "gdb", "mise", "direnv", "git", "hg", "fish", "nvim"}),
}
"""By the folder above: `.hg/hgrc` names hooks that every `hg` runs, `.cargo/config.toml` what builds run."""
OBEYED_FOLDERS = frozenset({".direnv", ".jj", ".run"}) | {name.casefold() for name in PROTECTED_NAMES - BUILD_SERVICES}
"""Of the names that are closed at the top of a workspace: below it an editor or an agent opened there obeys them."""
_OBEYED_ENDS = (".code-workspace", ".sublime-project")
_UNDRAWN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")


def plain_name(name: str) -> str:
    """As the most forgiving file system takes it: case folded, without letters that nobody sees or dots at its end."""
    if not name.isascii():
        letters = unicodedata.normalize("NFKC", name)
        name = "".join(letter for letter in letters if letter not in _UNDRAWN and not _is_undrawn(letter))
    return name.casefold().rstrip(" .")


def hides_letters(path: str) -> bool:
    """Zero-width signs, bidi controls, variation selectors, control characters."""
    return visible_line(path) != path or any(map(_is_selector, path))


def is_obeyed(path: str) -> bool:
    """Whether another program obeys what is written there; relative to the workspace."""
    names = [plain_name(part) for part in path.split("/") if part not in ("", ".")]
    if not names:
        return False
    if names[-1] in OBEYED_NAMES or names[-1].endswith(_OBEYED_ENDS):
        return True
    inner = any(name in OBEYED_IN.get(above, ()) for above, name in pairwise(names))
    return inner or not OBEYED_FOLDERS.isdisjoint(names)


def _is_selector(letter: str) -> bool:
    return "\ufe00" <= letter <= "\ufe0f" or "\u180b" <= letter <= "\u180f" or "\U000e0100" <= letter <= "\U000e01ef"


def _is_undrawn(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cf", "Cc") or _is_selector(letter)
