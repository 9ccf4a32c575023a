"""Words of a statement, and expressions made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from oracle_server.model import OracleError

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<quoted>"[^"\0]+")
  | (?P<text>[nN]?'(?:[^']|'')*')
  | (?P<name>[^\W\d][\w$\#]*)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)
  | (?P<bind>:\s*(?:\d+|[^\W\d][\w$\#]*|"[^"]+"))
  | (?P<operator>\|\||<>|!=|\^=|<=|>=|=>|:=|\.\.|[-+*/=<>(),.;@%:])
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = {"[": "]", "(": ")", "{": "}", "<": ">"}


class Token(NamedTuple):
    """One token."""

    kind: str
    """name, quoted, text, number, bind, operator or end."""
    value: str
    """Names in upper case, quoted names and texts without their quotes, all else as written."""
    start: int
    stop: int
    """The token is `sql[start:stop]`."""

    def word(self, *values: str) -> bool:
        return self.kind in ("name", "operator") and self.value in values


def tokens(sql: str) -> list[Token]:
    """Return the tokens of a statement; the last is of kind `end`.

    Raises:
        OracleError: ORA-00911 for a character that begins no token, ORA-01756 for an open quote.
    """
    found = []
    at = 0
    while at < len(sql):
        token = _alternative_quote(sql, at) or _next(sql, at)
        if token.kind != "skip":
            found.append(token)
        at = token.stop
    found.append(Token("end", "", len(sql), len(sql)))
    return found


def _next(sql: str, at: int) -> Token:
    match = _TOKEN.match(sql, at)
    if match is None:
        if sql[at] in "'\"":
            raise OracleError(1756, "quoted string not properly terminated", at)
        raise OracleError(911, "invalid character", at)
    kind, written = str(match.lastgroup), match.group()
    value = written
    if kind == "name":
        value = written.upper()
    elif kind == "quoted":
        value = written[1:-1]
    elif kind == "text":
        value = written[written.index("'") + 1 : -1].replace("''", "'")
    elif kind == "bind":
        value = written[1:].strip().strip('"')
    return Token(kind, value, at, match.end())


def _alternative_quote(sql: str, at: int) -> Token | None:
    if sql[at] not in "qQ" or sql[at + 1 : at + 2] != "'":
        return None
    if at and (sql[at - 1].isalnum() or sql[at - 1] in "_$#"):
        return None
    opening = sql[at + 2 : at + 3]
    closing = _QUOTES.get(opening, opening) + "'"
    end = sql.find(closing, at + 3)
    if end < 0:
        raise OracleError(1756, "quoted string not properly terminated", at)
    return Token("text", sql[at + 3 : end], at, end + 2)


def compact(sql: str, found: list[Token]) -> str:
    """Return what Oracle names an expression after: its text without blanks, in upper case."""
    return "".join(
        sql[token.start : token.stop]
        if token.kind in ("quoted", "text")
        else sql[token.start : token.stop].upper()
        for token in found
    ).replace('"', "")


@dataclass(frozen=True, slots=True)
class Name:
    """A column or pseudo-column; `table` is the alias before the dot."""

    name: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: text, number or None."""

    value: Any


@dataclass(frozen=True, slots=True)
class Bind:
    """The value of a bind variable; `index` counts the binds of the statement from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function, operator or condition: `+`, `AND`, `IS NULL`, `CASE`, `TO_CHAR`, ..."""

    name: str
    arguments: tuple[Any, ...]
    extra: str = ""
    """Of CAST the type, of COUNT `*`."""


class Unsupported(Exception):
    """The expression is beyond this parser; the whole statement goes another way."""


_COMPARISONS = ("=", "<>", "!=", "^=", "<", ">", "<=", ">=")
_WORDS_ALONE = {"SYSTIMESTAMP", "USER", "DBTIMEZONE"}
_RESERVED = {
    "FROM", "WHERE", "ORDER", "GROUP", "HAVING", "UNION", "AND", "OR", "THEN", "ELSE", "END",
    "WHEN", "AS", "ON", "ASC", "DESC", "CONNECT", "START", "FETCH", "OFFSET", "MINUS", "INTERSECT",
    "EXCEPT", "SELECT", "IN", "IS", "LIKE", "BETWEEN", "NOT",
}  # fmt: skip
_PACKAGES = {"DBMS_ROWID", "DBMS_LOB", "DBMS_FLASHBACK", "SYS", "UTL_RAW"}


class Parser:
    """Reads expressions from a list of tokens that ends in `end`."""

    def __init__(self, sql: str, found: list[Token], at: int = 0) -> None:
        self.sql = sql
        self.tokens = found
        self.at = at

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Skip a sequence of words if it comes next."""
        following = self.tokens[self.at : self.at + len(words)]
        if len(following) == len(words) and all(
            token.word(word) for token, word in zip(following, words, strict=True)
        ):
            self.at += len(words)
            return True
        return False

    def expect(self, word: str) -> None:
        """Skip a word that must come next."""
        if not self.accept(word):
            code = 907 if word == ")" else 900
            text = "missing right parenthesis" if word == ")" else "invalid SQL statement"
            raise OracleError(code, text, self.token.start)

    def identifier(self) -> str:
        """Return the name that must come next, quoted or not."""
        token = self.take()
        if token.kind not in ("name", "quoted"):
            raise OracleError(903, "invalid table name", token.start)
        return token.value

    def whole(self) -> Any:
        found = self.condition()
        if self.token.kind != "end":
            raise OracleError(933, "SQL command not properly ended", self.token.start)
        return found

    def condition(self) -> Any:
        left = self._conjunction()
        while self.accept("OR"):
            left = Call("OR", (left, self._conjunction()))
        return left

    def _conjunction(self) -> Any:
        left = self._negation()
        while self.accept("AND"):
            left = Call("AND", (left, self._negation()))
        return left

    def _negation(self) -> Any:
        if self.accept("NOT"):
            return Call("NOT", (self._negation(),))
        return self._comparison()

    def _comparison(self) -> Any:
        left = self.sum()
        token = self.token
        if token.kind == "operator" and token.value in _COMPARISONS:
            self.take()
            operator = "<>" if token.value in ("!=", "^=") else token.value
            return Call(operator, (left, self.sum()))
        if self.accept("IS"):
            negated = self.accept("NOT")
            if not self.accept("NULL"):
                raise Unsupported("IS")
            return self._negated(Call("IS NULL", (left,)), negated)
        negated = self.accept("NOT")
        if self.accept("BETWEEN"):
            low = self.sum()
            self.expect("AND")
            high = self.sum()
            both = Call("AND", (Call(">=", (left, low)), Call("<=", (left, high))))
            return self._negated(both, negated)
        if self.accept("IN"):
            return self._negated(Call("IN", (left, *self._list())), negated)
        if self.accept("LIKE"):
            pattern = self.sum()
            escape = (self.sum(),) if self.accept("ESCAPE") else ()
            return self._negated(Call("LIKE", (left, pattern, *escape)), negated)
        if negated:
            raise OracleError(936, "missing expression", self.token.start)
        return left

    @staticmethod
    def _negated(condition: Any, negated: bool) -> Any:
        return Call("NOT", (condition,)) if negated else condition

    def _list(self) -> tuple[Any, ...]:
        self.expect("(")
        items = [self.condition()]
        while self.accept(","):
            items.append(self.condition())
        self.expect(")")
        return tuple(items)

    def sum(self) -> Any:
        left = self._product()
        while self.token.word("+", "-", "||"):
            left = Call(self.take().value, (left, self._product()))
        return left

    def _product(self) -> Any:
        left = self._factor()
        while self.token.word("*", "/"):
            left = Call(self.take().value, (left, self._factor()))
        return left

    def _factor(self) -> Any:
        if self.accept("-"):
            inner = self._factor()
            if isinstance(inner, Constant) and isinstance(inner.value, Decimal):
                return Constant(inner.value.copy_negate())  # `-` would round to 28 digits.
            if isinstance(inner, Constant) and isinstance(inner.value, int):
                return Constant(-inner.value)
            return Call("-", (Constant(0), inner))
        if self.accept("+"):
            return self._factor()
        found = self._primary()
        while self.accept("AT", "TIME", "ZONE"):
            found = Call("AT TIME ZONE", (found, self._primary()))
        return found

    def _primary(self) -> Any:
        token = self.take()
        if token.kind == "text":
            return Constant(token.value or None)
        if token.kind == "number":
            return Constant(number(token.value))
        if token.kind == "bind":
            before = sum(1 for other in self.tokens[: self.at - 1] if other.kind == "bind")
            return Bind(before, token.value)
        if token.word("SELECT", "WITH", "EXISTS"):
            raise Unsupported(token.value)
        if token.word("("):
            if self.token.word("SELECT", "WITH"):
                raise Unsupported("subquery")
            inner = self.condition()
            if self.token.word(","):
                raise Unsupported("row value")
            self.expect(")")
            return inner
        if token.kind == "quoted":
            return self._named(token)
        if token.kind == "name" and token.value not in _RESERVED:
            return self._word(token)
        raise OracleError(936, "missing expression", token.start)

    def _word(self, token: Token) -> Any:
        word = token.value
        if word == "NULL":
            return Constant(None)
        if word in ("TRUE", "FALSE"):
            return Constant(word == "TRUE")
        if word in ("DATE", "TIMESTAMP") and self.token.kind == "text":
            return Call(word, (Constant(self.take().value),))
        if word == "INTERVAL":
            raise Unsupported(word)
        if word == "CASE":
            return self._case()
        if word in _WORDS_ALONE and not self.token.word("("):
            return Call(word, ())
        return self._named(token)

    def _named(self, token: Token) -> Any:
        parts = [token.value]
        while self.token.word(".") and len(parts) < 4:
            self.take()
            parts.append(self.take().value)
        function = ".".join(part for part in parts if part != "SYS" or len(parts) == 1)
        if self.token.word("("):
            call = self._call(function)
            if self.token.word("OVER", "WITHIN", "KEEP"):
                raise Unsupported(self.token.value)
            return call
        if parts[0] in _PACKAGES and len(parts) > 1:
            return Call(function, ())
        return Name(parts[-1], parts[-2] if len(parts) > 1 else None)

    def _call(self, name: str) -> Any:
        self.expect("(")
        if name == "CAST":
            inner = self.condition()
            self.expect("AS")
            return Call(name, (inner,), self._text_to_parenthesis())
        if self.accept(")"):
            return Call(name, ())
        if name == "COUNT" and self.accept("*"):
            self.expect(")")
            return Call(name, (), "*")
        if self.token.word("DISTINCT", "ALL", "UNIQUE"):
            raise Unsupported("DISTINCT")
        if name == "XMLSERIALIZE" and not self.accept("CONTENT"):
            self.accept("DOCUMENT")
        arguments = [self.condition()]
        while self.accept(","):
            arguments.append(self.condition())
        extra = ""
        if self.accept("AS") or self.accept("RETURNING"):
            extra = self._text_to_parenthesis()
        else:
            self.expect(")")
        return Call(name, tuple(arguments), extra)

    def _text_to_parenthesis(self) -> str:
        depth, words = 0, []
        while not (depth == 0 and self.token.word(")")):
            token = self.take()
            if token.kind == "end":
                raise OracleError(907, "missing right parenthesis", token.start)
            depth += token.word("(") - token.word(")")
            words.append(token.value)
        self.take()
        return " ".join(words).replace(" ( ", "(").replace(" )", ")").replace(" , ", ",")

    def _case(self) -> Any:
        operand = None if self.token.word("WHEN") else self.condition()
        arguments: list[Any] = []
        while self.accept("WHEN"):
            when = self.condition()
            arguments.append(when if operand is None else Call("=", (operand, when)))
            self.expect("THEN")
            arguments.append(self.condition())
        arguments.append(self.condition() if self.accept("ELSE") else Constant(None))
        self.expect("END")
        return Call("CASE", tuple(arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of a select list."""

    name: str
    expression: Any
    """None for `*`."""
    table: str | None = None
    """Of `x.*` the x."""


def select_items(parser: Parser) -> list[Item]:
    """Return the items up to FROM, which is left as the next token."""
    found = [_item(parser)]
    while parser.accept(","):
        found.append(_item(parser))
    return found


def _item(parser: Parser) -> Item:
    start = parser.at
    if parser.accept("*"):
        return Item(name="*", expression=None)
    following = parser.tokens[start : start + 3]
    if len(following) == 3 and following[1].word(".") and following[2].word("*"):
        parser.at += 3
        return Item(name="*", expression=None, table=following[0].value)
    expression = parser.condition()
    written = parser.tokens[start : parser.at]
    if parser.accept("AS") or (
        parser.token.kind == "quoted"
        or (parser.token.kind == "name" and parser.token.value not in _RESERVED)
    ):
        return Item(name=parser.identifier(), expression=expression)
    if isinstance(expression, Name):
        return Item(name=expression.name, expression=expression)
    return Item(name=compact(parser.sql, written), expression=expression)


def number(text: str) -> int | Decimal:
    plain = text.rstrip("fFdD")
    return int(plain) if plain.isdigit() else Decimal(plain)


def conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, Call) and condition.name == "AND":
        return [part for side in condition.arguments for part in conjuncts(side)]
    return [condition]


def names(expression: Any) -> list[Name]:
    if isinstance(expression, Name):
        return [expression]
    if isinstance(expression, Call):
        return [found for argument in expression.arguments for found in names(argument)]
    return []
