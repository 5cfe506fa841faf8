"""What makes a function depend on more than its partition, by which names."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any


class Kind(Enum):
    """A kind of impurity: what it is called, why it harms a backfill, and the remedy."""

    CLOCK = (
        "clock",
        "what is computed depends on when: a backfill of 2024 would see the time of the backfill",
        "take the time from the partition (context.partition_time_window) or from a column of an input",
    )
    RANDOM = (
        "random",
        "computing the same partition again gives other rows",
        "seed a generator by the partition: random.Random(context.partition_key), numpy.random.default_rng(...)",
    )
    UNIQUE = (
        "unique",
        "computing the same partition again gives other values, and whoever has kept the old ones finds nothing",
        "derive it from what makes the row unique: uuid.uuid5(...) or a hash of its key",
    )
    ENVIRONMENT = (
        "environment",
        "another machine, or the same one later, computes other rows, and the ledger does not say why",
        "take it as config, whose hash the ledger records",
    )
    ZONE = (
        "time zone",
        "the time zone of the process decides: a laptop and a server compute other rows",
        "name the zone: tz=ZoneInfo(...)",
    )
    ORDER = (
        "order",
        "the order of a set, and the hash of a text, are others in every process",
        "sort it, or use hashlib",
    )
    ROW_ORDER = (
        "row order",
        "a database gives rows in any order, so that others may be taken the next time",
        "add ORDER BY, over columns that leave no choice",
    )
    WRITE = (
        "write",
        "what is appended or written besides the rows is there twice after a backfill, and no fence protects it",
        "return the rows, which the swap puts in place of the old ones",
    )
    READ = (
        "read",
        "the ledger does not know what was read: nobody sees when it has changed, and a backfill reads it as it is now",
        "make it an asset, and an input of this one",
    )
    DIMENSION = (
        "unpartitioned input",
        "a backfill of an old partition reads it as it is now, and not as it was then",
        "partition it, as customer_tiers of the market is, or keep valid_from and valid_to and select as of the key",
    )
    WAIVER = (
        "waiver",
        "nobody can judge later whether it still holds",
        "say why: # marigold: pure because <reason>",
    )

    def __init__(self, label: str, why: str, remedy: str) -> None:
        self.label, self.why, self.remedy = label, why, remedy


Call = Any  # an ast.Call, or None where a name is only mentioned


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Why a name is impure.

    Attributes:
        kind: The kind.
        applies: Whether a call, or mention, of it is; by default each.
        is_weak: Whether it is only a hint.
        remedy: What to do about it, where that is not what is done about the kind.
    """

    kind: Kind
    applies: Callable[[Call], bool] = lambda _: True
    is_weak: bool = False
    remedy: str | None = None


def _has_fewer(count: int, *keywords: str) -> Callable[[Call], bool]:
    """Whether a call gives fewer arguments than these: it has to ask somebody else then."""
    return lambda call: (
        call is None or (len(call.args) < count and not any(one.arg in {*keywords, None} for one in call.keywords))
    )


def _asks_now(call: Call) -> bool:
    """Whether a call is given the word for the present time."""
    first = call.args[0] if call is not None and call.args else None
    return getattr(first, "value", None) in {"now", "today"}


def _connects_to_file(call: Call) -> bool:
    """Whether a database is opened that is more than memory."""
    if call is None:
        return True
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "database")]
    return bool(given) and getattr(given[0], "value", None) != ":memory:"


def opens_for_writing(call: Call) -> bool:
    """Whether a call of ``open`` writes."""
    if call is None:
        return False
    given = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "mode")]
    mode = getattr(given[0], "value", "r") if given else "r"
    return not isinstance(mode, str) or not set("awx+").isdisjoint(mode)


def _opens_for_reading(call: Call) -> bool:
    return call is not None and not opens_for_writing(call)


_NAMES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(
        [
            *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
            *("time.time", "time.time_ns", "pandas.Timestamp.now", "pandas.Timestamp.utcnow", "pandas.Timestamp.today"),
            *("pendulum.now", "pendulum.today", "pendulum.yesterday", "pendulum.tomorrow", "arrow.now", "arrow.utcnow"),
        ],
        (Rule(kind=Kind.CLOCK),),
    ),
    **dict.fromkeys(["time.gmtime", "time.localtime", "time.ctime"], (Rule(kind=Kind.CLOCK, applies=_has_fewer(1)),)),
    **dict.fromkeys(["time.strftime", "time.asctime"], (Rule(kind=Kind.CLOCK, applies=_has_fewer(2)),)),
    "pandas.to_datetime": (Rule(kind=Kind.CLOCK, applies=_asks_now),),
    **dict.fromkeys(["pandas.Timestamp", "numpy.datetime64"], (Rule(kind=Kind.CLOCK, applies=_asks_now),)),
    "datetime.datetime.fromtimestamp": (Rule(kind=Kind.ZONE, applies=_has_fewer(2, "tz")),),
    **dict.fromkeys(["datetime.date.fromtimestamp", "time.mktime", "time.tzname"], (Rule(kind=Kind.ZONE),)),
    "random.Random": (Rule(kind=Kind.RANDOM, applies=_has_fewer(1, "x")),),
    "random.SystemRandom": (Rule(kind=Kind.RANDOM),),
    "numpy.random.default_rng": (Rule(kind=Kind.RANDOM, applies=_has_fewer(1, "seed")),),
    "numpy.random.RandomState": (Rule(kind=Kind.RANDOM, applies=_has_fewer(1, "seed")),),
    "numpy.random.SeedSequence": (Rule(kind=Kind.RANDOM, applies=_has_fewer(1, "entropy")),),
    "os.urandom": (Rule(kind=Kind.RANDOM),),
    **dict.fromkeys(["uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"], (Rule(kind=Kind.UNIQUE),)),
    **dict.fromkeys(
        [
            f"secrets.{name}"
            for name in ("token_bytes", "token_hex", "token_urlsafe", "choice", "randbelow", "randbits")
        ],
        (Rule(kind=Kind.UNIQUE),),
    ),
    **dict.fromkeys(
        [
            *("os.environ", "os.environb", "os.getenv", "os.getcwd", "os.getlogin", "os.getpid", "os.uname"),
            *("os.cpu_count", "pathlib.Path.cwd", "pathlib.Path.home", "socket.gethostname", "platform.node"),
            *("getpass.getuser", "sys.argv", "sys.platform", "locale.getlocale", "tempfile.gettempdir"),
        ],
        (Rule(kind=Kind.ENVIRONMENT),),
    ),
    **dict.fromkeys(["builtins.hash", "builtins.id"], (Rule(kind=Kind.ORDER, applies=lambda call: call is not None),)),
    "builtins.open": (
        Rule(kind=Kind.WRITE, applies=opens_for_writing),
        Rule(kind=Kind.READ, applies=_opens_for_reading, is_weak=True),
    ),
    **dict.fromkeys(["duckdb.connect", "sqlite3.connect"], (Rule(kind=Kind.READ, applies=_connects_to_file),)),
    **dict.fromkeys(
        [
            *("pandas.read_sql", "pandas.read_sql_query", "pandas.read_sql_table", "polars.read_database"),
            *("polars.read_database_uri", "sqlalchemy.create_engine", "urllib.request.urlopen"),
            *("urllib.request.urlretrieve", "subprocess.run", "subprocess.check_output", "subprocess.Popen"),
        ],
        (Rule(kind=Kind.READ),),
    ),
    **dict.fromkeys(
        [
            *(f"pandas.read_{name}" for name in ("csv", "parquet", "json", "excel", "feather", "pickle", "table")),
            *(f"polars.{way}_{name}" for way in ("read", "scan") for name in ("csv", "parquet", "ndjson", "ipc")),
            *("polars.read_json", "polars.read_excel", "pyarrow.parquet.read_table", "os.listdir", "glob.glob"),
        ],
        (Rule(kind=Kind.READ, is_weak=True),),
    ),
}
_NETWORK = frozenset(
    ["requests", "httpx", "aiohttp", "urllib3", "boto3", "psycopg", "psycopg2", "pymysql", "snowflake", "ftplib"]
)
_UNLIKE_RANDOM = frozenset(["seed", "getstate", "setstate", "get_state", "set_state", "get_bit_generator"])
_IMPORTED = frozenset(["datetime", "time", "random", "uuid", "secrets", "os", "pathlib", "builtins", "sys", "locale"])


class Names:
    """The rules, by the objects that names stand for: whatever an import calls them."""

    def __init__(self) -> None:
        self._rules: dict[Any, tuple[Rule, ...]] = {}
        for name, rules in _NAMES.items():
            found = _object(name)
            if found is not None:
                self._rules[_identity(found)] = rules
        self._rules |= {_identity(one): (Rule(kind=Kind.RANDOM),) for one in _shared_generators()}

    def rules(self, value: object) -> tuple[Rule, ...]:
        """The rules of what a name stands for."""
        found = self._rules.get(_identity(value))
        if found is not None:
            return found
        if is_generator(value):
            return (Rule(kind=Kind.RANDOM),)
        module = value.__name__ if isinstance(value, ModuleType) else attribute_of(value, "__module__")
        return (Rule(kind=Kind.READ),) if str(module).partition(".")[0] in _NETWORK else ()


def attribute_of(value: object, name: str) -> Any:
    """An attribute of a function, method or class; of other objects ``None``: they may have an answer to anything."""
    is_plain = isinstance(value, FunctionType | MethodType | BuiltinFunctionType | type)
    return getattr(value, name, None) if is_plain or "cython" in type(value).__name__ else None


def is_drawing(value: object) -> bool:
    """Whether something is a method of a generator of random numbers."""
    return is_generator(attribute_of(value, "__self__"))


def is_generator(value: object) -> bool:
    """Whether something is a generator of random numbers, which goes on from partition to partition."""
    numpy: Any = sys.modules.get("numpy")
    if isinstance(value, random.Random):
        return True
    return numpy is not None and isinstance(value, numpy.random.Generator | numpy.random.RandomState)


def _identity(value: object) -> Any:
    """What tells objects apart: bound methods are made anew whenever they are asked for."""
    of = attribute_of(value, "__self__")
    return (id(of), attribute_of(value, "__name__")) if of is not None else id(value)


def _object(name: str) -> Any:
    """What a dotted name stands for, as far as it has been imported by anybody."""
    parts = name.split(".")
    if parts[0] not in sys.modules and parts[0] in _IMPORTED:
        importlib.import_module(parts[0])
    for count in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:count]))
        if found is None:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found
    return None


def _shared_generators() -> Iterator[object]:
    """The functions of ``random`` and ``numpy.random`` that draw from what the whole process shares."""
    for module in (random, getattr(sys.modules.get("numpy"), "random", None)):
        for name in dir(module):
            value = getattr(module, name)
            if is_drawing(value) and name not in _UNLIKE_RANDOM:
                yield value


_SEEDS = ("random_state", "seed")
_METHODS: dict[str, Rule] = {
    "astimezone": Rule(kind=Kind.ZONE, applies=_has_fewer(1, "tz")),
    "to_sql": Rule(kind=Kind.WRITE),
    "write_database": Rule(kind=Kind.WRITE),
    "sample": Rule(kind=Kind.RANDOM, applies=lambda call: len(call.args) < 2 and not _is_given(call, *_SEEDS, "k")),
    "shuffle": Rule(kind=Kind.RANDOM, applies=lambda call: not call.args and not _is_given(call, *_SEEDS)),
}
"""Methods of frames and of moments that are impure, told from those of generators, which take what they draw from."""


_NAIVE = "name the zone: datetime(..., tzinfo=ZoneInfo(...)).timestamp()"


def rule_of_attribute(node: Any, call: Call) -> Rule | None:
    """Why an attribute of something unknown is impure, by its name and by what it is an attribute of."""
    of = node.value
    if node.attr == "run_id":
        return Rule(kind=Kind.UNIQUE)
    if node.attr == "timestamp" and call is not None and not (call.args or call.keywords):
        return _rule_of_moment(of)
    return None


_WITH_ZONE = 8  # arguments of a datetime


def _rule_of_moment(made: Any) -> Rule | None:
    """Why the timestamp of a moment depends on the zone of the process: its own was not named, by the looks of it."""
    name = str(getattr(getattr(made, "func", None), "attr", getattr(getattr(made, "func", None), "id", "")))
    if name == "datetime":
        has_zone = len(made.args) >= _WITH_ZONE or any(one.arg in {"tzinfo", None} for one in made.keywords)
        return None if has_zone else Rule(kind=Kind.ZONE, remedy=_NAIVE)
    if name == "strptime":
        layout = getattr(made.args[-1], "value", None) if made.args else None
        return None if not isinstance(layout, str) or "%z" in layout else Rule(kind=Kind.ZONE, remedy=_NAIVE)
    return Rule(kind=Kind.ZONE, remedy=_NAIVE, is_weak=True) if name == "fromisoformat" else None


def _is_given(call: Call, *keywords: str) -> bool:
    return call is None or any(one.arg in {*keywords, None} for one in call.keywords)


def rule_of_method(name: str, call: Call) -> Rule | None:
    """Why a method is impure, if a call of it is."""
    if name.startswith("to_") and call is not None and any(_is_append(one) for one in call.keywords):
        return Rule(kind=Kind.WRITE)
    found = _METHODS.get(name)
    return found if found is not None and call is not None and found.applies(call) else None


def _is_append(keyword: Any) -> bool:
    return (keyword.arg, getattr(keyword.value, "value", None)) in {("mode", "a"), ("if_exists", "append")}
