"""What makes SQL depend on more than the partition, and which tables it names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from marigold_assets.code.impurities import Kind, Rule

_SQL_START = re.compile(
    r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*|\(\s*)*"
    r"(?:select\b|with\s+(?:recursive\s+)?[\w\"]+\s+(?:\([^)]*\)\s*)?as\b|insert\s|update\s+\S+\s+set\b|delete\s+from\b|merge\s+into\b"
    r"|create\s+(?:or\s+replace\s+)?(?:temp\w*\s+)?(?:table|view)\b|copy\s|attach\s|values\s*\(|pivot\s"
    r"|from\s+\S+(?:\s+(?:as\s+)?\w+)?\s*(?:$|;|\b(?:where|select|join|left|inner|group|order|limit)\b))",
    re.IGNORECASE | re.DOTALL,
)
_BY_KEY = "derive it from what makes the row unique: md5(id), hash(id, day)"
_FROM_KEY = "put the time of the partition into the SQL (context.partition_time_window), or take it from a column"
_CLOCK_OF_SQL = Rule(kind=Kind.CLOCK, remedy=_FROM_KEY)
_SQL_PATTERNS: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), rule)
    for pattern, rule in (
        (
            r"\b(?:now|today|get_current_time(?:stamp)?|transaction_timestamp|current_localtime(?:stamp)?)\s*\(\s*\)",
            _CLOCK_OF_SQL,
        ),
        (r"\b(?:current_timestamp|current_date|current_time|localtimestamp|localtime)\b", _CLOCK_OF_SQL),
        (r"\bage\s*\([^,()]*\)", _CLOCK_OF_SQL),
        (
            r"\b(?:random|setseed)\s*\(",
            Rule(kind=Kind.RANDOM, remedy="derive it from the key of the row: hash(id) % 1000 / 1000.0"),
        ),
        (
            r"\b(?:using\s+sample|tablesample)\b(?!.*\b(?:repeatable|seed)\b)",
            Rule(kind=Kind.RANDOM, remedy="choose rows by their key: WHERE hash(id) % 100 < 5"),
        ),
        (r"\b(?:uuid|uuidv4|uuidv7|gen_random_uuid|nextval)\s*\(", Rule(kind=Kind.UNIQUE, remedy=_BY_KEY)),
        (r"\b(?:getenv|current_setting)\s*\(", Rule(kind=Kind.ENVIRONMENT)),
        (
            r"\binsert\s+(?:or\s+\w+\s+)?into\b|\bmerge\s+into\b|\bdelete\s+from\b|\bupdate\s+\S+\s+set\b|\bcopy\b.*\bto\b",
            Rule(kind=Kind.WRITE),
        ),
        (r"\b(?:read_csv|read_parquet|read_json|read_blob|read_text|glob)\w*\s*\(", Rule(kind=Kind.READ, is_weak=True)),
        (r"\battach\b", Rule(kind=Kind.READ)),
    )
)
_CHOOSES = re.compile(
    r"\b(any_value|arbitrary|first|last|list|array_agg|string_agg|listagg|group_concat)\s*\(", re.IGNORECASE
)
_NUMBERS = re.compile(r"\brow_number\s*\(\s*\)\s*over\s*\(", re.IGNORECASE)
_LIMIT = re.compile(r"\blimit\s+\d+", re.IGNORECASE)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_TABLE = re.compile(
    r"(?<!distinct )\b(?:from|join)\s+(?!\()((?:\"[^\"]+\"|\w+)(?:\.(?:\"[^\"]+\"|\w+))*)", re.IGNORECASE
)
_FILE = re.compile(r"\b(?:from|join)\s+'", re.IGNORECASE)
_CTE = re.compile(
    r"(?:\bwith\s+(?:recursive\s+)?|,\s*)(\"[^\"]+\"|\w+)\s*(?:\([^()]*\)\s*)?as\s*(?:\w+\s+)*\(", re.IGNORECASE
)
_NO_TABLE = re.compile(r"\b(?:extract|substring|trim|overlay|position)\s*\([^()]*\)", re.IGNORECASE)
_QUIET = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)

PLACEHOLDER = "marigold_placeholder"
"""What stands in SQL for a value that is put into it."""


def is_sql(text: str) -> bool:
    """Whether a text is SQL."""
    return _SQL_START.match(text) is not None


def of_sql(text: str, *, is_whole: bool) -> Iterator[tuple[int, str, Rule]]:
    """What is impure in SQL.

    Args:
        text: The SQL.
        is_whole: Whether it is a whole statement, and not an expression.

    Yields:
        Where (offset), what, and why.
    """
    plain = _QUIET.sub(_blank, text)
    for pattern, rule in _SQL_PATTERNS:
        for found in pattern.finditer(plain):
            yield found.start(), f"SQL {' '.join(found[0].split())[:40].rstrip('(')}", rule
    choosing = [(found, _within(plain, found.end())) for found in _CHOOSES.finditer(plain)]
    choosing += [(found, _within(plain, found.end())) for found in _NUMBERS.finditer(plain)]
    for found, inner in choosing:
        if not _ORDER.search(inner):
            yield found.start(), f"SQL {found[0].split('(')[0].strip()} without ORDER BY", _WEAK_ORDER
    if is_whole and not _ORDER.search(plain):
        for found in _LIMIT.finditer(plain):
            yield found.start(), "SQL LIMIT without ORDER BY", _WEAK_ORDER
    for found in _FILE.finditer(text):
        yield found.start(), "SQL that reads a file", Rule(kind=Kind.READ, is_weak=True)


_WEAK_ORDER = Rule(kind=Kind.ROW_ORDER, is_weak=True)


def _within(text: str, start: int) -> str:
    """The text up to the parenthesis that closes one that was opened just before."""
    depth = 1
    for position in range(start, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return text[start:position]
    return text[start:]


def tables_of_sql(text: str) -> Iterator[tuple[int, str]]:
    """The tables that SQL names, but for those that it defines itself: where (offset), and the name unquoted."""
    plain = _NO_TABLE.sub(_blank, _QUIET.sub(_blank, text))
    own = {name.strip('"').lower() for name in _CTE.findall(plain)}
    for found in _TABLE.finditer(plain):
        name = found[1].replace('"', "")
        rest = plain[found.end(1) :].lstrip()
        if name.lower() not in own and PLACEHOLDER not in name and not rest.startswith("("):
            yield found.start(), name


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])
