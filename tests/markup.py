"""A page read strictly: what is wrong with its markup, its labels and landmarks, and what it would run or load."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
SVG_EMPTY = frozenset("path rect line".split())
LABELLED = frozenset({"input", "select", "textarea"})
HEADINGS = re.compile(r"h[1-6]")


class Markup(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.labels: set[str] = set()
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self._open]
        self.problems += [f"id {name!r} stands twice" for name in set(self.ids) if self.ids.count(name) > 1]
        self._check_whole()

    # ── reading ──

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if len(found) != len(attrs):
            self.problems.append(f"<{tag}> has an attribute twice")
        self.tags.append((f"svg {tag}" if "svg" in self._open else tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "label" and "for" in found:
            self.labels.add(found["for"])
        self._check_tag(tag, found)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in SVG_EMPTY | VOID:
            self.problems.append(f"<{tag}/> closes itself, which HTML does not know")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self._open[-1:] or 'nothing'}")
        elif self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    # ── checking ──

    def _check_tag(self, tag: str, found: dict[str, str]) -> None:
        self.problems += [f"<{tag} {name}>: inline scripts" for name in found if name.startswith("on")]
        if "style" in found or tag in ("style", "iframe", "object", "embed", "img", "base"):
            self.problems.append(f"<{tag}>: not in these pages")
        if tag == "script" and (not found.get("nonce") or not found.get("src", "").startswith("/console/static/")):
            self.problems.append("a script without nonce or from elsewhere")
        for name in ("href", "src", "action"):
            if name in found and not found[name].startswith(("/console", "#")):
                self.problems.append(f"<{tag} {name}={found[name]!r}> leads elsewhere")
        if tag == "form" and found.get("method", "get").lower() not in ("get", "post"):
            self.problems.append("a form of another method")
        if tag == "th" and "scope" not in found:
            self.problems.append("<th> without scope")

    def _check_whole(self) -> None:
        named = [tag for tag, _ in self.tags]
        self.problems += [f"{named.count(tag)} <{tag}>" for tag in ("h1", "main", "title") if named.count(tag) != 1]
        inside_label = 0
        for tag, found in self.tags:
            if (
                tag in LABELLED
                and found.get("type") not in ("hidden", "checkbox")
                and found.get("id") not in self.labels
            ):
                self.problems.append(f"<{tag} name={found.get('name')!r}> has no label")
            if tag == "svg" and not ({"aria-hidden", "aria-label", "aria-labelledby"} & found.keys()):
                inside_label += 1
        if inside_label:
            self.problems.append(f"{inside_label} pictures without words")
        if ("html", {"lang": "en"}) not in self.tags:
            self.problems.append("no language")

    @property
    def text(self) -> str:
        return "".join(self.words)

    def of(self, tag: str) -> list[dict[str, str]]:
        return [found for name, found in self.tags if name == tag]
