"""SKILL.md files as Hypothesis makes them: from a grammar, and by damaging valid ones."""

from __future__ import annotations

from hypothesis import strategies as st

NAME = "my-skill"
BOM = "\ufeff"

# Mostly valid, with a slip of every kind now and then.
WORDS = (
    "use",
    "PDF",
    "files",
    "a-b",
    "1.10",
    "2024-01-01",
    "yes",
    "null",
    "0x1F",
    "é",
    "技能",
    "it's",
    "x{y}",
    "a:b",
    "a#b",
)
ODD = (
    "a: b",
    "a #b",
    "#",
    "---",
    "a --- b",
    "- x",
    "? x",
    ": x",
    "-",
    "?",
    ":",
    "@x",
    "`x`",
    "%x",
    "=",
    "<<",
    "~",
    "x:",
)
ILLEGAL = (
    "*x",
    "&x y",
    "!t y",
    "!!str y",
    "[a, b]",
    "{a: b}",
    "[",
    "{",
    "]",
    "|x",
    "'",
    '"',
    "\t",
    "x\ty",
    "\x85",
    "\u2028x",
)
LENGTHS = ("x" * 1024, "x" * 1025, "é" * 1024, "x " * 250, "x" * 500, "x" * 501)
ESCAPES = (r"\n", r"\t", r"\x41", r"\u00e9", r"\q", r"\a", r"\/", r"\ud800", "\\\n  x")
KEYS = ("license", "compatibility", "allowed-tools", "metadata")
SLIPPED_KEYS = ("name", "description", "version", "tags", "<<", "=", "", "? license", '"license"', "license ")
INNER_KEYS = ("<<", "=", "", "? a", "? - a", "'a'", '"b"', "a b", "~", "a", "a")
NAMES = (
    NAME + " ",
    "My-Skill",
    "my--skill",
    "-my-skill",
    "my_skill",
    "技能",
    "other",
    "",
    "ｍy-skill",
    "my-ski\u00adll",
)
BLANKS = ("\n", "\n\n", "  \n", "\t\n", "# note\n", "  # note\n", "\n# note\n\n", "\n\t", "\n \n")


def often(
    usual: st.SearchStrategy[str], *rare: st.SearchStrategy[str], weight: int = 8
) -> st.SearchStrategy[str]:
    """Mostly the usual, so that most files are valid but for one slip."""
    return st.sampled_from([usual] * weight * len(rare) + list(rare)).flatmap(lambda chosen: chosen)


words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
random_text = st.text(alphabet="ab: #-'\"\\,[]{}&*!|>%@`?=\t~.\u00e9\x85", max_size=8)
slip = st.one_of(st.sampled_from(ODD), st.sampled_from(ILLEGAL), st.sampled_from(LENGTHS), random_text)
plain = often(words, slip)
blank = often(st.just(""), st.sampled_from(BLANKS), weight=5)
comment = often(st.just(""), st.sampled_from((" # note", "  #", "\t# note", " #\n# more")))
margins = often(st.sampled_from(("  ", "  ", "    ")), st.sampled_from(("", " ", "   ", "\t")))


@st.composite
def quoted(draw: st.DrawFn) -> str:
    text = draw(st.one_of(words, slip))
    style = draw(st.sampled_from("''\"\"e"))
    if style == "'":
        return "'" + text.replace("'", "''") + "'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{draw(st.sampled_from(ESCAPES)) if style == "e" else ""}{escaped}"'


@st.composite
def block(draw: st.DrawFn, margin: str) -> str:
    indicator = draw(often(st.sampled_from(("", "-", "+")), st.sampled_from(("2", "1-", "+1", "0", "x"))))
    head = draw(st.sampled_from("|>")) + indicator + draw(comment)
    lines = draw(st.lists(st.one_of(words, slip, st.just("")), max_size=3))
    inner = margin + draw(margins)
    return (
        head
        + "\n"
        + "\n".join(inner + line for line in lines)
        + draw(st.sampled_from(("", "\n", "\n\n", "\n# note")))
    )


@st.composite
def folded(draw: st.DrawFn, margin: str) -> str:
    return draw(plain) + "\n" + draw(blank) + margin + draw(margins) + draw(plain)


@st.composite
def mapping(draw: st.DrawFn, depth: int, outer: str) -> str:
    margin = outer + draw(margins)
    lines = [draw(blank)]
    for number in range(draw(st.integers(1, 3))):
        key = draw(often(st.just(f"k{number}"), st.sampled_from(INNER_KEYS)))
        uneven = draw(often(st.just(""), st.sampled_from((" ", "\t")), weight=20))
        lines.append(f"{margin}{uneven}{key}:{draw(value(depth - 1, margin))}\n{draw(blank)}")
    return "\n" + "".join(lines).rstrip("\n")


@st.composite
def sequence(draw: st.DrawFn, depth: int, outer: str) -> str:
    margin = outer + draw(st.sampled_from(("", "  ")))
    items = draw(st.lists(value(depth - 1, margin + "  "), min_size=1, max_size=3))
    return "\n" + draw(blank) + "\n".join(f"{margin}-{item}{draw(blank)}" for item in items)


@st.composite
def scalar(draw: st.DrawFn, margin: str) -> str:
    style = draw(
        st.sampled_from((plain, plain, plain, quoted(), quoted(), block(margin), folded(margin), st.just("")))
    )
    return draw(often(st.just(" "), st.sampled_from(("  ", "")))) + draw(style) + draw(comment)


def value(depth: int, margin: str) -> st.SearchStrategy[str]:
    flat = scalar(margin)
    return st.one_of(flat, mapping(depth, margin), sequence(depth, margin)) if depth > 0 else flat


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A SKILL.md made from the grammar."""
    name = draw(often(st.just(NAME), st.sampled_from(NAMES)))
    entries = [f"name: {name}", "description:" + draw(st.one_of(st.just(" Reads files."), value(0, "")))]
    for key in draw(
        st.lists(often(st.sampled_from(KEYS), st.sampled_from(SLIPPED_KEYS)), max_size=3, unique=True)
    ):
        entries.append(f"{key}:{draw(value(2, ''))}")
    if draw(st.integers(0, 9)) == 0:
        entries = draw(st.permutations(entries))[: draw(st.integers(0, len(entries)))]
    yaml = "".join(f"{line}\n{draw(blank)}" for line in entries)
    opening = draw(
        often(
            st.just("---\n"),
            st.sampled_from(("--- \n", "---", "----\n", "", "---# note\n", "\n---\n", "--- ")),
        )
    )
    ends = ("---", "--- \n", "----\n", "", "  ---\n", "---body\n", "...\n---\n")
    closing = draw(often(st.just("---\n"), st.sampled_from(ends))) + draw(
        st.sampled_from(("# Body\n", "a --- b\n", ""))
    )
    mark = draw(often(st.just(""), st.just(BOM), weight=20))
    line_end = draw(st.sampled_from(("\n", "\n", "\n", "\r\n", "\r")))
    return (mark + opening + yaml + closing).replace("\n", line_end).encode("utf-8", "replace")


MARKS = tuple("\n \t:-#'\"[]{}&*!|>%@`?,\\=<~")
NASTY = (
    *MARKS,
    "\r\n",
    "\n\n",
    "---",
    "\n---\n",
    ": ",
    " #",
    "\x00",
    "\x85",
    "\u2028",
    BOM,
    "...",
    "\n...\n",
)


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """A valid file with a few characters put in, taken out or repeated."""
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from((0, 0, 0, 1, 1, 2, 5)))
        put = draw(st.one_of(st.sampled_from(NASTY), st.just(text[position : position + 9]), st.just("")))
        text = text[:position] + put + text[position + length :]
    return text.encode("utf-8", "replace")


VALID = (
    f"---\nname: {NAME}\ndescription: Reads files.\n---\n# Body\n",
    f"---\nname: {NAME}\ndescription: >-\n  Reads files,\n  many of them.\n\nlicense: MIT # note\nmetadata:\n  a: b\n\n"
    "  # note\n  c:\n  - d\n  - e: f\n    g: 'h'\n---\n",
    f'---\n# note\n\nname: \'{NAME}\'\ndescription: "Reads \\"files\\"."\ncompatibility: |\n  Python\n   3.11\n\n'
    "allowed-tools: Bash(git:*) Read\nmetadata:\n\n    a:\n      b: c\n    d:\n      e:\n---\nBody --- more\n",
)
