"""Cedar text, its schema and its examples → a `PolicyBundle`: checked whole, content-addressed, ready to be asked.

A bundle is loaded in this order, and the first thing wrong ends it with a `PolicyError` that names file, line and
policy: 1. caps (scan); 2. parse; 3. an @id on every policy, each once, every @code a reason; 4. the schema
describes what Palyra sends; 5. strict validation; 6. every example decides as written.

Local policies stand beside a bundle's own. One that bears the @id of a bundle's policy replaces it, so an operator
can soften a forbid, which Cedar could not override otherwise; a policy marked @final cannot be replaced. A permit with
@lifts is an exception of the forbids it names (lifting).

Not here: reading files (store), deciding (decide).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import partial
from typing import Literal

from palyra.canon import Json, digest
from palyra.errors import Reason
from palyra.policy.cedar import Bounded, Compiled, compile_policies, conforms, parse_schema, parse_tree, validate
from palyra.policy.scan import PolicyError, Span, check_caps, find_policies
from palyra.policy.verdict import PolicyInfo, Verdict, judge
from palyra.values import dataclass

__all__ = ["PolicyBundle", "PolicyError", "PolicyInfo", "load_builtin", "load_bundle", "with_local"]

SCHEMA_FILE = "schema.cedarschema"
EXAMPLES_FILE = "examples.toml"
LOCAL = "local/"
"""Before the name of each file of local policies."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ANNOTATIONS = frozenset({"id", "code", "reason", "hint", "final", "lifts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBundle:
    name: str
    digest: str
    """SHA-256 over the canonical JSON of schema, policies and examples."""
    policies: Mapping[str, str]
    """Text by file name."""
    schema: str
    examples: str
    """As written; `parse_examples` reads them."""
    index: Mapping[str, PolicyInfo]
    """By @id, in order of @id."""
    stale: str = field(compare=False, default="")
    """Why these are not the policies that the operator wrote last (store); empty when they are."""
    cedar: Compiled = field(compare=False, repr=False)
    verdicts: Bounded[Verdict] = field(compare=False, repr=False, default_factory=Bounded)
    """What was decided before, by everything a policy of this bundle can see. Errors are not kept."""

    def text_of(self, policy: str) -> str:
        """One policy as it is written."""
        info = self.index[policy]
        return self.policies[info.file][info.start : info.end]

    @property
    def files(self) -> dict[str, str]:
        return {**self.policies, SCHEMA_FILE: self.schema, EXAMPLES_FILE: self.examples}


@dataclass(frozen=True, slots=True)
class _Placed:
    """One policy: where it stands, how it reads, what Cedar made of it."""

    file: str
    span: Span
    tree: Mapping[str, Json]

    @property
    def id(self) -> str:
        return str(self.tree["annotations"]["id"])


def load_bundle(name: str, files: Mapping[str, str]) -> PolicyBundle:
    """Check and compile a bundle, examples included."""
    bundle = load_builtin(name, files)
    check_examples(bundle, EXAMPLES_FILE, bundle.examples)
    return bundle


def load_builtin(name: str, files: Mapping[str, str], *, typed: bool = True) -> PolicyBundle:
    """The same without running the examples: Palyra's own bundles come with the package, and its tests run them.

    `typed` is False for one of these at a start, and for a bundle that was in use before, to make its decisions again:
    the schema it was validated against may know less of a request than today's.
    """
    check_caps(files)
    _check_names(files)
    texts = {file: text for file, text in sorted(files.items()) if file.endswith(".cedar")}
    placed = _parse(texts)
    index = {info.id: info for info in sorted((_info(p) for p in placed), key=lambda info: info.id)}
    schema_text, examples = files.get(SCHEMA_FILE, ""), files.get(EXAMPLES_FILE, "")
    joined = _join(texts)
    try:
        if typed:
            _check_types(joined, placed, schema_text)
        compiled = compile_policies({f"policy{at}": tree for at, tree in enumerate(_with_exceptions(placed))})
    except ValueError as error:
        raise PolicyError(f"Cedar could not take the policies: {error}.") from None
    return PolicyBundle(
        name=name,
        digest=digest({"format": 1, "schema": schema_text, "policies": texts, "examples": examples}),
        policies=texts,
        schema=schema_text,
        examples=examples,
        index=index,
        cedar=compiled,
    )


def _with_exceptions(placed: list[_Placed]) -> list[Mapping[str, Json]]:
    trees = [policy.tree for policy in placed]
    if not any("lifts" in tree["annotations"] for tree in trees):
        return trees
    from palyra.policy.lifting import apply_exceptions

    return apply_exceptions(trees)


def with_local(bundle: PolicyBundle, local: Mapping[str, str]) -> PolicyBundle:
    """The bundle with an operator's policies beside its own. Only the operator's examples are run: a replaced
    policy may well contradict what the bundle's own examples say."""
    check_caps(local)
    if SCHEMA_FILE in local:
        raise PolicyError("The schema is Palyra's own.", "Remove the file.", file=LOCAL + SCHEMA_FILE)
    _check_names(local)
    added = {LOCAL + file: text for file, text in local.items() if file.endswith(".cedar")}
    newcomers = {p.id: p for p in _parse(added)}
    for policy_id, newcomer in newcomers.items():
        known = bundle.index.get(policy_id)
        if known is not None and known.final:
            raise PolicyError(
                f"This policy cannot be replaced: {known.final}",
                "Give your policy another @id.",
                file=newcomer.file,
                line=newcomer.span.line,
                policy=policy_id,
            )
    from palyra.policy.examples import parse_examples

    examples = local.get(EXAMPLES_FILE, "")
    if not newcomers and not parse_examples(LOCAL + EXAMPLES_FILE, examples):
        return bundle  # nothing but comments
    kept = {file: _without(file, text, newcomers.keys()) for file, text in bundle.policies.items()}
    merged = load_builtin(
        f"{bundle.name}+local", {**kept, **added, SCHEMA_FILE: bundle.schema, EXAMPLES_FILE: examples}
    )
    check_examples(merged, LOCAL + EXAMPLES_FILE, examples)
    return merged


def check_examples(bundle: PolicyBundle, file: str, text: str) -> int:
    """How many examples hold; raises PolicyError for the first that does not."""
    from palyra.policy.examples import parse_examples

    examples = parse_examples(file, text)
    for example in examples:
        problem = example.differs(judge(bundle.cedar, bundle.index, example.request))
        if problem:
            raise PolicyError(f"Example {example.name!r}: {problem}.", file=file)
    return len(examples)


def decided_otherwise(bundle: PolicyBundle, file: str, text: str) -> tuple[int, tuple[tuple[str, str], ...]]:
    """How many examples there are, and what came instead of each that does not hold: by name."""
    from palyra.policy.examples import parse_examples

    examples = parse_examples(file, text)
    problems = ((one.name, one.differs(judge(bundle.cedar, bundle.index, one.request))) for one in examples)
    return len(examples), tuple((name, problem) for name, problem in problems if problem)


def _check_names(files: Mapping[str, str]) -> None:
    """A forbid in a misnamed file would be missing without a word."""
    for file in files:
        if not file.endswith(".cedar") and file not in (SCHEMA_FILE, EXAMPLES_FILE):
            raise PolicyError(
                "A bundle holds .cedar files, a schema and examples.toml.", "Rename or move it.", file=file
            )


def _join(texts: Mapping[str, str]) -> str:
    return "\n".join(texts.values())


def _parse(texts: Mapping[str, str]) -> list[_Placed]:
    """Every policy of these files, in order, ids checked."""
    spans = [(file, span) for file, text in texts.items() for span in find_policies(file, text)]
    try:
        tree = parse_tree(_join(texts))
    except ValueError as error:
        raise _blame(texts, spans, error) from None
    if len(tree) != len(spans):
        raise PolicyError(f"Found {len(spans)} policies where Cedar found {len(tree)}.", file=next(iter(texts), ""))
    placed = [_Placed(file, span, tree[f"policy{at}"]) for at, (file, span) in enumerate(spans)]
    seen: dict[str, _Placed] = {}
    for policy in placed:
        _check_annotations(policy)
        other = seen.setdefault(policy.id, policy)
        if other is not policy:
            where = f"{other.file}:{other.span.line}"
            raise PolicyError(
                f"The @id is already used, at {where}.", file=policy.file, line=policy.span.line, policy=policy.id
            )
    return placed


def _blame(texts: Mapping[str, str], spans: list[tuple[str, Span]], error: ValueError) -> PolicyError:
    """Cedar's parse errors name no place: parse policy by policy to find it."""
    for file, span in spans:
        try:
            parse_tree(texts[file][span.start : span.end])
        except ValueError as here:
            return PolicyError(f"This is not valid Cedar: {here}.", file=file, line=span.line)
    return PolicyError(f"This is not valid Cedar: {error}.", file=next(iter(texts), ""))


def _check_annotations(policy: _Placed) -> None:
    notes: Mapping[str, str | None] = policy.tree["annotations"]
    wrong = partial(PolicyError, file=policy.file, line=policy.span.line)
    policy_id = notes.get("id")
    if not policy_id:
        raise wrong('The policy has no @id("…").', "Every policy needs a name that refusals can cite.")
    if not _ID.fullmatch(policy_id):
        raise wrong("An @id has letters, digits and . _ - only, at most 80.", policy=policy_id[:80])
    unknown = sorted(notes.keys() - _ANNOTATIONS)
    if unknown:
        known = ", ".join(f"@{name}" for name in sorted(_ANNOTATIONS))
        hint = f"Palyra knows {known}. A policy that asks for a person says: unless {{ context.approved }}"
        raise wrong(f"Unknown annotation @{unknown[0]}.", hint, policy=policy_id)
    if "lifts" in notes:
        from palyra.policy.lifting import check_lifting  # only where there are exceptions

        if problem := check_lifting(policy.tree):
            raise wrong(problem, policy=policy_id)
    code = notes.get("code")
    if code is not None and code not in Reason.__members__:
        raise wrong(f"@code({code!r}) is not a reason.", "palyra explain lists them.", policy=policy_id)


def _info(policy: _Placed) -> PolicyInfo:
    notes: Mapping[str, str | None] = policy.tree["annotations"]
    effect: Literal["permit", "forbid"] = "permit" if policy.tree["effect"] == "permit" else "forbid"
    code = notes.get("code")
    return PolicyInfo(
        id=policy.id,
        effect=effect,
        code=Reason(code) if code else None,
        reason=notes.get("reason") or "",
        hint=notes.get("hint") or "",
        final=notes.get("final") or "",
        lifts=tuple((notes.get("lifts") or "").split()),
        file=policy.file,
        line=policy.span.line,
        start=policy.span.start,
        end=policy.span.end,
    )


def _check_types(joined: str, placed: list[_Placed], schema_text: str) -> None:
    from palyra.policy.examples import sample_requests

    find_policies(SCHEMA_FILE, schema_text)  # the same caps on nesting; a schema's declarations end with `;` too
    try:
        schema = parse_schema(schema_text)
        complaint = next(filter(None, (conforms(request, schema) for request in sample_requests())), "")
    except ValueError as error:
        raise PolicyError(f"The schema cannot be used: {error}.", file=SCHEMA_FILE) from None
    if complaint:
        raise PolicyError(f"The schema does not describe Palyra's requests: {complaint}.", file=SCHEMA_FILE)
    for position, sentence in validate(joined, schema):
        at = int(position.removeprefix("policy")) if position else -1
        if at < 0:
            raise PolicyError(f"{sentence}.")
        policy = placed[at]
        text = re.sub(r"^for policy `\w+`, ", "", sentence)
        raise PolicyError(f"{text}.", file=policy.file, line=policy.span.line, policy=policy.id)


def _without(file: str, text: str, ids: Collection[str]) -> str:
    """The file with the named policies blanked out, so that every other policy keeps its line."""
    policies = _parse({file: text})
    for policy in policies:
        if policy.id in ids:
            span = policy.span
            text = text[: span.start] + re.sub(r"[^\n]", " ", text[span.start : span.end]) + text[span.end :]
    return text
