"""The YAML that the reference validator accepts, read without it.

The reference validator reads frontmatter with strictyaml, which is a YAML 1.2 parser that keeps comments, and then
refuses much of YAML. This is PyYAML's own scanner and parser with each of those differences, so that both accept
the same documents; tests/test_strict_property.py compares them over generated files. What differs:

- flow collections, tags, anchors and aliases are refused, and so are duplicate keys, keys that are not text, and
  mappings side by side that are indented differently;
- comments and blank lines are tokens: a blank line hides tabs in the indentation of the line after it;
- only CR and LF start a new line when columns are counted;
- a mapping may have an empty key, and `...` may end the document once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from yaml import events, tokens
from yaml.error import MarkedYAMLError, YAMLError
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

from skillexec.skills.frontmatter import MAX_DEPTH, line_of
from skillexec.skills.rules import shown

_LINE_END = "\n\0\r\x85\u2028\u2029"
_FORBIDDEN: dict[type[tokens.Token], tuple[str, str, str]] = {
    tokens.TagToken: ("yaml-tag", "YAML tags are not allowed", "remove it, or quote the value"),
    tokens.AnchorToken: ("yaml-anchor", "YAML anchors are not allowed", "remove it, or quote the value"),
    tokens.AliasToken: ("yaml-alias", "YAML aliases are not allowed", "write the value out, or quote it"),
    tokens.FlowMappingStartToken: (
        "yaml-flow",
        "braces are not allowed",
        "one `key: value` a line, or quote it",
    ),
    tokens.FlowSequenceStartToken: (
        "yaml-flow",
        "brackets are not allowed",
        "one `- item` a line, or quote it",
    ),
}
_BEFORE_COMMENT = (
    tokens.ScalarToken,
    tokens.ValueToken,
    tokens.FlowSequenceEndToken,
    tokens.FlowMappingEndToken,
)


class Refused(Exception):
    """The document is not one that the reference validator would read."""

    def __init__(self, rule: str, message: str, fix: str, line: int) -> None:
        super().__init__(message)
        self.rule, self.message, self.fix, self.line = rule, message, fix, line


@dataclass(slots=True)
class Scalar:
    value: str
    plain: bool
    line: int

    @property
    def text(self) -> str | None:
        """The text; None for a lone `=` or `<<`, to which YAML gives types of their own."""
        return None if self.plain and self.value in ("=", "<<") else self.value


@dataclass(slots=True)
class Sequence:
    line: int
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Mapping:
    line: int
    column: int
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    merged: list[Node] = field(default_factory=list)


Node = Scalar | Sequence | Mapping


class _Comment(tokens.Token):
    id = "comment"


class _Loader(Reader, Scanner, Parser):
    """PyYAML's reader, scanner and parser, counting, queueing and refusing as the reference's do."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        self.keeps_breaks = False
        self.breaks: list[str] = []

    # Columns: other line ends than CR and LF do not start over.

    def forward(self, length: int = 1) -> None:
        for _ in range(length):
            character = self.buffer[self.pointer]
            self.pointer += 1
            self.index += 1
            if character == "\n" or (character == "\r" and self.buffer[self.pointer] != "\n"):
                self.line += 1
                self.column = 0
            elif character != "\ufeff":
                self.column += 1

    # Comments and blank lines are tokens that wait in the queue with the others.

    def fetch_more_tokens(self) -> None:
        comment = self._next_comment()
        if comment is None:
            Scanner.fetch_more_tokens(self)
        else:
            self.tokens.append(comment)

    def scan_to_next_token(self) -> None:
        self._next_comment()

    def _next_comment(self) -> _Comment | None:
        """Go on to the next token, or past the comment or blank lines that come before it."""
        if self.index == 0 and self.peek() == "\ufeff":
            self.forward()
        while True:
            while self.peek() == " ":
                self.forward()
            if self.peek() == "#":
                return self._scan_comment()
            if not self.scan_line_break():
                return None
            self._start_line()
            if self.peek() == "\n":
                return self._scan_blank_lines()

    def _start_line(self) -> None:
        if not self.flow_level:
            self.allow_simple_key = True

    def scan_line_break(self) -> str:
        return str(Scanner.scan_line_break(self))  # type: ignore[no-untyped-call]  # the stubs leave it out

    def _scan_comment(self) -> _Comment:
        start = self.get_mark()
        while self.peek() not in _LINE_END:
            self.forward()
        if self.peek() != "\0":
            self.forward()
        while self.scan_line_break():
            pass
        self._start_line()
        return _Comment(start, self.get_mark())

    def _scan_blank_lines(self) -> _Comment:
        start = self.get_mark()
        while self.scan_line_break() or self._scan_blank():
            pass
        return _Comment(start, self.get_mark())

    def _scan_blank(self) -> bool:
        if self.peek() not in "\t ":
            return False
        self.forward()
        return True

    def _gather_comments(self) -> None:
        if not self.tokens:
            return
        self._drop_comment(0)
        while self.need_more_tokens():
            self.fetch_more_tokens()
            if not self.tokens:
                return
            self._drop_comment(0)
        if not self.done and len(self.tokens) < 2:
            self.fetch_more_tokens()

    def _drop_comment(self, index: int) -> bool:
        if len(self.tokens) <= index or not isinstance(self.tokens[index], _Comment):
            return False
        self.tokens_taken += 1
        del self.tokens[index]
        return True

    def _fill(self) -> None:
        while self.need_more_tokens():
            self.fetch_more_tokens()
        self._gather_comments()

    def check_token(self, *choices: Any) -> bool:
        self._fill()
        if not self.tokens or not choices:
            return bool(self.tokens)
        found = isinstance(self.tokens[0], choices)
        if found:
            self._refuse(self.tokens[0])
        return found

    def _refuse(self, token: tokens.Token) -> None:
        if type(token) in _FORBIDDEN:
            raise Refused(*_FORBIDDEN[type(token)], token.start_mark.line + 1)

    def peek_token(self) -> Any:
        self._fill()
        return self.tokens[0] if self.tokens else None

    def get_token(self) -> Any:
        self._fill()
        if not self.tokens:
            return None
        if self._comment_belongs_to_first():
            while self._drop_comment(1):
                self.fetch_more_tokens()
        self.tokens_taken += 1
        return self.tokens.pop(0)

    def _comment_belongs_to_first(self) -> bool:
        if len(self.tokens) < 2 or not isinstance(self.tokens[1], _Comment):
            return False
        first, comment = self.tokens[:2]
        same_line = first.end_mark.line == comment.start_mark.line
        return isinstance(first, _BEFORE_COMMENT) if same_line else isinstance(first, tokens.ScalarToken)

    # A block scalar takes the blank lines and comments after it along, unless it keeps its own.

    def scan_block_scalar_indicators(self, start_mark: Any) -> Any:
        chomping, increment = Scanner.scan_block_scalar_indicators(self, start_mark)
        self.keeps_breaks = chomping is True
        return chomping, increment

    def scan_block_scalar_indentation(self) -> Any:
        self.breaks, indent, mark = Scanner.scan_block_scalar_indentation(self)
        return self.breaks, indent, mark

    def scan_block_scalar_breaks(self, indent: int) -> Any:
        self.breaks, mark = Scanner.scan_block_scalar_breaks(self, indent)
        return self.breaks, mark

    def scan_block_scalar(self, style: str) -> Any:
        token = Scanner.scan_block_scalar(self, style)
        if self.breaks and not self.keeps_breaks:
            while self._next_comment() is not None:
                pass
        return token

    # The grammar, as YAML 1.2 has it.

    def parse_document_end(self) -> Any:
        event = Parser.parse_document_end(self)
        self.state = self.parse_implicit_document_start
        return event

    def parse_block_mapping_key(self) -> Any:
        if not self.check_token(tokens.KeyToken) and self.check_token(tokens.ValueToken):
            self.state = self.parse_block_mapping_value
            return self.process_empty_scalar(self.peek_token().start_mark)
        return Parser.parse_block_mapping_key(self)  # type: ignore[no-untyped-call]


class _Composer:
    """Nodes from events, without recursion."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.open: list[Sequence | Mapping] = []
        self.keys: list[Node | None] = []  # of each open mapping, the key that waits for its value

    def compose(self, stream: Iterator[Any]) -> Node | None:
        for event in stream:
            if isinstance(event, events.DocumentStartEvent) and self.root is not None:
                raise Refused("yaml-documents", "a second document", "remove it", _line(event))
            if isinstance(event, events.CollectionEndEvent):
                self.open.pop()
                self.keys.pop()
            elif isinstance(event, events.NodeEvent):
                self._add(event)
        return self.root

    def _add(self, event: Any) -> None:
        node = _node(event)
        self._place(node)
        if isinstance(node, Scalar):
            return
        if len(self.open) >= MAX_DEPTH:
            raise Refused(
                "yaml-depth", f"nested deeper than {MAX_DEPTH} levels", "make it flatter", node.line
            )
        self.open.append(node)
        self.keys.append(None)

    def _place(self, node: Node) -> None:
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif self.keys[-1] is None:
            self.keys[-1] = node
        else:
            parent.pairs.append((self.keys[-1], node))
            self.keys[-1] = None


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _node(event: Any) -> Node:
    if isinstance(event, events.ScalarEvent):
        return Scalar(event.value, bool(event.implicit[0]), _line(event))
    if isinstance(event, events.SequenceStartEvent):
        return Sequence(_line(event))
    return Mapping(_line(event), event.start_mark.column)


def _events(loader: Any) -> Iterator[Any]:
    while (event := loader.get_event()) is not None:
        yield event


def _is_merge(key: Node) -> bool:
    return isinstance(key, Scalar) and key.plain and key.value == "<<"


def _separate_merges(mapping: Mapping) -> None:
    """`<<` takes mappings, once. What it brings does not count as given."""
    merges = [(key, value) for key, value in mapping.pairs if _is_merge(key)]
    for key, value in merges:
        sources = value.items if isinstance(value, Sequence) else [value]
        if mapping.merged or not all(isinstance(source, Mapping) for source in sources):
            raise Refused("yaml-merge", "`<<` takes mappings, once", "quote it if it is text", key.line)
        mapping.merged.extend(sources)
    mapping.pairs = [(key, value) for key, value in mapping.pairs if not _is_merge(key)]


def _check_keys(mapping: Mapping) -> None:
    seen: set[str] = set()
    for key, _ in mapping.pairs:
        if not isinstance(key, Scalar):
            raise Refused("yaml-key", "a key that is not text", "use plain text as the key", key.line)
        if key.value in seen:
            raise Refused(
                "key-duplicate", f"the key {shown(key.value)} is given twice", "remove one", key.line
            )
        seen.add(key.value)


def _check_indentation(mapping: Mapping) -> None:
    nested = [value for _, value in mapping.pairs if isinstance(value, Mapping)]
    for value in nested:
        if value.column != nested[0].column:
            message = "indented differently from the mapping before it"
            raise Refused("yaml-indentation", message, f"indent it by {nested[0].column} spaces", value.line)


def _check(root: Node) -> None:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Sequence):
            waiting.extend(node.items)
        elif isinstance(node, Mapping):
            _separate_merges(node)
            _check_keys(node)
            _check_indentation(node)
            waiting.extend(node.merged)
            waiting.extend(value for _, value in node.pairs)


def _as_refused(error: YAMLError, text: str) -> Refused:
    if isinstance(error, ReaderError):
        return Refused("yaml-control", "a control character", "remove it", line_of(text, error.position))
    assert isinstance(error, MarkedYAMLError)
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    return Refused("yaml-syntax", str(error.problem or error.context), "quote the value if it is text", line)


def load(text: str) -> Node | None:
    """The document's root, with merge keys set aside; None for an empty one. Raises Refused."""
    try:
        root = _Composer().compose(_events(_Loader(text)))
    except YAMLError as error:
        raise _as_refused(error, text) from None
    if root is not None:
        _check(root)
    return root
