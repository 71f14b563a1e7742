"""Policy text is measured before Cedar parses it, and every policy's place is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.policy.scan import MAX_BRACKETS, MAX_DEPTH, MAX_LINE, PolicyError, Span, check_caps, find_policies

HEAD = '@id("a")\npermit (principal, action, resource)'


def policy(body: str) -> str:
    return f"{HEAD}\nwhen {{ {body} }};\n"


def test_each_policy_has_its_place_and_line():
    first = '// one\n@id("a")\npermit (principal, action, resource);\n\n'
    second = '// ; not an end\n@id("b;")\nforbid (principal, action, resource);\n'
    text = first + second
    spans = find_policies("x.cedar", text)
    assert [(span.line, text[span.start : span.end].splitlines()[0]) for span in spans] == [
        (2, '@id("a")'),
        (6, '@id("b;")'),
    ]
    assert text[spans[1].end :] == "\n"


def test_no_text_has_no_policies():
    assert find_policies("x.cedar", "// nothing\n") == ()


@pytest.mark.parametrize(
    "body",
    [
        "(" * 1000 + "true" + ")" * 1000,
        "[" * 1000 + "1" + "]" * 1000,
        "{a: " * 1000 + "1" + "}" * 1000,
        "!(" * 1000 + "true" + ")" * 1000,
        " && ".join(["true"] * 1000),
        " || ".join(["true"] * 1000),
        "if true then false else " * 1000 + "true",
        "if " * 1000 + "true" + " then true else true" * 1000,
        "context" + ".a" * 1000,
        " + ".join(["1"] * 1000),
        "context has a" + ".a" * 1000,
        "\n".join(["(true &&"] * 40) + "true" + ")" * 40,
    ],
)
def test_thousand_levels_of_nesting_are_refused_before_the_parser(body: str):
    with pytest.raises(PolicyError, match=r"x\.cedar:\d+: .*deeper than"):
        find_policies("x.cedar", policy(body))


def test_thousand_when_clauses_are_a_chain_too():
    with pytest.raises(PolicyError, match="deeper than"):
        find_policies("x.cedar", HEAD + " when { true }" * 1000 + ";")


def test_chains_add_up_across_brackets():
    piece = "true && " * 10
    deep = f"({piece}" * 20 + "true" + ")" * 20
    with pytest.raises(PolicyError, match=f"deeper than {MAX_DEPTH}"):
        find_policies("x.cedar", policy(deep))


def test_a_bracket_before_a_long_chain_is_at_its_bottom():
    inner = "(" + " && ".join(["true"] * 70) + ")"
    with pytest.raises(PolicyError, match=f"deeper than {MAX_DEPTH}"):
        find_policies("x.cedar", policy(inner + " && true" * 70))


def test_items_of_a_long_set_are_beside_each_other():
    names = ", ".join(f'"host{n}"' for n in range(200))
    calls = ", ".join("ip(context.a)" for _ in range(200))
    assert len(find_policies("x.cedar", policy(f"[{names}].contains(context.x) && [{calls}] == 1"))) == 1


def test_brackets_in_strings_and_comments_do_not_count():
    hidden = '"' + "(" * 1000 + '\\""'
    assert len(find_policies("x.cedar", policy(f"context.a == {hidden} // {'(' * 500}\n"))) == 1


def test_a_comment_ends_at_a_carriage_return_as_it_does_for_cedar():
    """Otherwise brackets after a lone CR would be hidden from this scan and crash the parser."""
    with pytest.raises(PolicyError, match=f"nested deeper than {MAX_BRACKETS}"):
        find_policies("x.cedar", "// note\r" + policy("(" * 100 + "true" + ")" * 100))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('permit (principal, action, resource) when { "abc', "x.cedar:1: A string that begins here does not end."),
        ("\npermit (principal, action, resource)", "x.cedar:2: The policy that begins here does not end with `;`."),
        ("permit (principal, action, resource));", "x.cedar:1: `)` closes nothing."),
    ],
)
def test_text_that_does_not_end_is_named_with_its_line(text: str, message: str):
    with pytest.raises(PolicyError) as caught:
        find_policies("x.cedar", text)
    assert str(caught.value) == message


def test_ten_mebibytes_are_refused():
    with pytest.raises(PolicyError, match="at most 1048576 bytes"):
        check_caps({"x.cedar": "// x\n" * (2 << 20)})


def test_bytes_count_not_characters():
    with pytest.raises(PolicyError, match="at most 1048576 bytes"):
        check_caps({"x.cedar": "// é\n" * (200 << 10)})


def test_too_many_files_and_too_long_lines_are_refused():
    with pytest.raises(PolicyError, match="at most 256 files"):
        check_caps({f"{n}.cedar": "" for n in range(257)})
    with pytest.raises(PolicyError, match=r"x\.cedar:2: A line has at most"):
        check_caps({"x.cedar": "\n" + "/" * (MAX_LINE + 1)})


def test_half_a_character_is_refused():
    with pytest.raises(PolicyError, match="not valid Unicode"):
        check_caps({"x.cedar": "\ud800"})


@given(st.text(alphabet='()[]{};,.!&|"\\/\n\r a1@:', max_size=200))
def test_any_text_is_refused_or_cut_into_policies_in_order(text: str):
    try:
        spans = find_policies("x.cedar", text)
    except PolicyError as error:
        where, spans = (error.file, error.line), ()
    else:
        where = ("x.cedar", 1)
    assert where[0] == "x.cedar"
    assert 1 <= where[1] <= text.count("\n") + 1
    end = 0
    for span in spans:
        assert isinstance(span, Span)
        assert end <= span.start < span.end
        assert text[span.end - 1] == ";"
        assert span.line == text.count("\n", 0, span.start) + 1
        end = span.end
