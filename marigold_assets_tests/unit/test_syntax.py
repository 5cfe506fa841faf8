"""The text of a syntax tree: the same in every Python version, and with all that counts."""

from __future__ import annotations

import ast
import textwrap

import pytest

from marigold_assets.code.syntax import read


def reading(*nodes):
    return read(nodes, is_bound=lambda name: False)


def parsed(text):
    return ast.parse(textwrap.dedent(text)).body


def test_parts_of_a_formatted_string_are_one_text_however_they_are_split():
    [expected] = parsed("f'ab{x:>{w}}c'")
    field = expected.value.values[1]
    spec = ast.JoinedStr([ast.Constant(""), ast.Constant(">"), ast.FormattedValue(ast.Name("w", ast.Load()), -1, None)])
    split = [
        ast.Constant("a"),
        ast.Constant("b"),
        ast.FormattedValue(field.value, -1, spec),
        ast.Constant("c", kind="u"),
    ]
    assert reading(expected.value).text == reading(ast.JoinedStr([*split, ast.Constant("")])).text
    assert reading(*parsed("f'{x:}'")).text == reading(*parsed("f'{x}'")).text
    assert reading(*parsed("y = f'a' 'b'")).text == reading(*parsed("y = 'ab'")).text
    assert reading(*parsed("f'{x!r}'")).text != reading(*parsed("f'{x!s}'")).text


def test_fields_that_a_release_adds_or_fills_do_not_count():
    [expected] = parsed("def made(a, *, b): return a")

    class FunctionDef(ast.FunctionDef):
        _fields = (*ast.FunctionDef._fields, "type_params", "something_new")

    newer = FunctionDef(**{name: getattr(expected, name) for name in ast.FunctionDef._fields}, something_new=None)
    newer.type_params = [ast.Name("T", ast.Load())]
    del newer.decorator_list
    assert reading(newer).text == reading(expected).text


def test_a_template_string_of_a_later_release_can_be_read():
    class Interpolation(ast.expr):
        _fields = ("value", "str", "conversion", "format_spec")

    class TemplateStr(ast.expr):
        _fields = ("values",)

    def template(*parts):
        field = Interpolation(value=ast.Name("x", ast.Load()), str="x", conversion=-1, format_spec=None)
        return TemplateStr(values=[*map(ast.Constant, parts), field])

    assert reading(template("ab")).text == reading(template("a", "", "b")).text
    assert reading(template("ab")).text != reading(template("ac")).text
    assert reading(template("ab")).references[0].path == ("x",)


def test_the_text_is_what_it_was_written_to_be():
    """A change of this text is another fingerprint for everybody: then the format of fingerprints has to rise."""
    [made] = parsed(
        """
        def made(orders, *, tax=0x10):
            'Says what.'
            total = sum(f"{row.net:.2f}é" for row in orders if row != None)
            return pd.concat([total, -tax])
        """
    )
    assert reading(made).text == (
        "(FunctionDef args (arguments args [ (arg arg 'orders' ) ] kw_defaults [ 0x10 ] kwonlyargs [ (arg arg 'tax' )"
        " ] ) body [ (Assign targets [ <total> ] value (Call args [ (GeneratorExp elt (JoinedStr (FormattedValue"
        " format_spec '.2f' value <row.net> ) '\\xe9' ) generators [ (comprehension ifs [ (Compare comparators [ None ]"
        " left <row> ops [ (NotEq ) ] ) ] is_async 0x0 iter <orders> target <row> ) ] ) ] func <sum> ) ) (Return value"
        " (Call args [ (List elts [ <total> (UnaryOp op (USub ) operand <tax> ) ] ) ] func <pd.concat> ) ) ]"
        " name 'made' )"
    )
    assert [one.path for one in reading(made).references] == [("sum",), ("pd", "concat")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(a, b=c, *d, e, **g): return a, b, d, e, g, h", "h c"),
        ("def f():\n  x = [y for y in y if z]\n  return x, y", "y z y"),
        ("def f():\n  global x\n  x = 1\n  return x", "x"),
        ("class C(B):\n  x = 1\n  def m(self): return x, self.y", "B x"),
        ("def f():\n  try: g()\n  except E as e: return e\n  with w as v: return v", "g E w"),
        (
            "def f(x):\n  match x:\n    case [a, *b]: return a\n    case {'k': c, **d}: return c, d\n    case K(): 0",
            "K",
        ),
        ("lambda a: lambda b: a + b + c", "c"),
        ("def f():\n  x = 1\n  def g():\n    nonlocal x\n    x = 2\n    return x\n  return g", ""),
        ("def f():\n  import a.b as c, d.e\n  from m import n\n  return c.x, d, n", "c d n c d n"),
    ],
)
def test_names_of_a_definition_that_are_not_its_own(text, names):
    [statement] = parsed(text)
    assert sorted(one.path[0] for one in reading(statement).references) == sorted(names.split())


def test_a_query_added_up_of_hundreds_of_strings_can_be_read():
    text = "def made():\n    return (" + " + ".join(f"'{n}'" for n in range(800)) + ")\n"
    assert reading(*parsed(text)).text.count("BinOp") == 799


def test_files_of_sql_that_are_named():
    found = reading(*parsed("x = 'a.sql', f'q/of_{region}.sql', f'{name}.sql', 'SELECT 1'"))
    assert found.sql == ("a.sql", "of_*.sql", "*.sql")


def test_sql_that_stands_in_functions_is_told_from_the_rest():
    text = "a = 'a.sql', [x for x in 'b.sql']\ng = lambda c='c.sql': ([f'{x}/d.sql' for x in y], 'a.sql')"
    found = reading(*parsed(text))
    assert found.sql == ("a.sql", "b.sql", "c.sql", "d.sql")
    assert found.late_sql == ("a.sql", "d.sql")
