"""A house made of what was read: which room stands on which storey, who leans on whom, where a knot is.

Pure functions over the values of house_reading.py. Not here: the rules' command line (house.py), the drawing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from house_reading import Edge, Module, matches


@dataclass(frozen=True)
class House:
    name: str
    modules: dict[str, Module]
    edges: set[Edge]
    depth: int
    layers: list[list[str]]  # roof first; empty when the storeys are to be derived
    apart: frozenset[int]  # the layers whose rooms may not import each other

    def place(self, name: str) -> tuple[int | None, str]:
        """The layer (None when unplaced) and the room of a module: the longest match wins."""
        inner = self.modules[name].inner
        best: tuple[int | None, str] = (None, ".".join(inner.split(".")[: self.depth]) or ".")
        for number, rooms in enumerate(self.layers):
            for room in rooms:
                fits = inner == room or inner.startswith(room + ".")
                if fits and (best[0] is None or len(room) > len(best[1])):
                    best = (number, room)
        return best

    def rooms(self) -> dict[str, list[Module]]:
        found = defaultdict(list)
        for module in self.modules.values():
            found[self.place(module.name)[1]].append(module)
        return found

    def room_edges(self) -> set[tuple[str, str]]:
        pairs = ((self.place(e.source)[1], self.place(e.target)[1]) for e in self.edges if e.kind != "type")
        return {(a, b) for a, b in pairs if a != b}

    def storeys(self) -> list[list[str]]:
        rooms = set(self.rooms())
        if not self.layers:
            return derive_storeys(rooms, self.room_edges())
        placed = [[r for r in storey if r in rooms] for storey in self.layers]
        return [*placed, sorted(rooms - {r for storey in placed for r in storey})]

    def violations(self) -> Iterator[tuple[Edge, str]]:
        for edge in sorted(e for e in self.edges if e.kind != "type"):
            (up, source), (down, target) = self.place(edge.source), self.place(edge.target)
            if up is None or down is None:
                continue
            if down < up:
                yield edge, "reaches up to"
            elif down == up and up in self.apart and source != target:
                yield edge, "reaches across to"

    def unplaced(self) -> list[str]:
        """Modules that no storey takes in, when there are storeys: a new room has to be given its place."""
        return [m.inner for m in self.modules.values() if self.layers and self.place(m.name)[0] is None]

    def knots(self) -> list[list[str]]:
        """Import cycles, those through an import inside a function too."""
        cycles = find_cycles((e.source, e.target) for e in self.edges if e.kind != "type")
        return [[self.modules[name].inner for name in cycle] for cycle in cycles]


def parse_layers(text: str) -> tuple[list[list[str]], frozenset[int]]:
    lines = [s.partition("#")[0].strip() for s in text.replace(";", "\n").splitlines()]
    lines = [s for s in lines if s]
    apart = frozenset(n for n, s in enumerate(lines) if s.startswith("="))
    return [s.lstrip("=").split() for s in lines], apart


def find_cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Strongly connected components of two or more nodes (Tarjan), largest first."""
    graph = defaultdict(list)
    for source, target in edges:
        graph[source].append(target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            knot = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(knot) > 1:
                found.append(sorted(knot))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def derive_storeys(rooms: set[str], edges: set[tuple[str, str]]) -> list[list[str]]:
    """Storeys by the longest path down to a room that leans on nothing; a knot shares one."""
    knot = {room: frozenset([room]) for room in rooms}
    for cycle in find_cycles(edges):
        knot |= dict.fromkeys(cycle, frozenset(cycle))
    height: dict[frozenset[str], int] = {}

    def measure(group: frozenset[str]) -> int:
        if group not in height:
            below = {knot[b] for a, b in edges if a in group and b not in group}
            height[group] = 1 + max((measure(g) for g in below), default=-1)
        return height[group]

    storeys = defaultdict(list)
    for room in sorted(rooms):
        storeys[measure(knot[room])].append(room)
    return [storeys[h] for h in sorted(storeys, reverse=True)]


def find_impure(patterns: list[str], modules: dict[str, Module], edges: set[Edge]) -> Iterator[str]:
    """A line for each module declared pure that touches the world, or leans on one that does."""
    wanted = [p for p in patterns if not p.startswith("!")]
    spared = [p[1:] for p in patterns if p.startswith("!")]
    below = defaultdict(set)
    for edge in edges:
        if edge.kind != "type":
            below[edge.source].add(edge.target)
    for module in modules.values():
        if matches(module.inner, spared) or not matches(module.inner, wanted):
            continue
        reached, todo = {module.name}, [module.name]
        while todo:
            new = below[todo.pop()] - reached
            reached |= new
            todo.extend(new)
        worldly = [modules[n] for n in [module.name, *sorted(reached - {module.name})] if modules[n].world]
        if worldly:
            through = "" if worldly[0] is module else f" (through {worldly[0].inner})"
            yield f"not pure: {module.inner} uses {' '.join(worldly[0].world[:4])}{through}"
