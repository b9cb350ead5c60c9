"""Finds the conditions of a module in its syntax tree, and changes one of them at a time."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# A comparison that differs by one from the written one, or by nothing but its limit.
_BOUNDARY: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_BOUNDARY_TEXT: Final = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
# The values of ledger/operations.py that are conditions of a write or of a query.
_GROUPS: Final = frozenset({"AllOf", "AnyOf"})
_CLAUSES: Final = frozenset({"Absent", "Compare", "Lacks", "SizeAtMost", "BeginsWith", "Between"})
_HOLDS: Final = (
    "__import__('countledger.ledger.operations', fromlist=['Absent']).Absent('never-written')"
)
_HIT_IMPORT: Final = "from tools.mutation.hits import hit as _hit"
_TESTS: Final = (ast.If, ast.While, ast.IfExp, ast.Assert)


@dataclass(frozen=True, slots=True)
class Guard:
    """One condition of a module.

    Attributes:
        within: the qualified name of the class or function that contains it; "" at the top level.
        text: its source, on one line.
        line: where it begins.
        changes: the mutated source for each mutation, by the mutation's name.
    """

    within: str
    text: str
    line: int
    changes: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Site:
    """The field of a syntax node that has a guard as its value."""

    holder: ast.AST
    field: str
    index: int | None
    within: str
    is_test: bool

    @property
    def node(self) -> ast.expr:
        value = getattr(self.holder, self.field)
        found: ast.expr = value if self.index is None else value[self.index]
        return found

    def replace(self, node: ast.expr) -> None:
        if self.index is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.index] = node

    def changes(self) -> dict[str, str]:
        node = self.node
        return _of_value(node) | (_of_test(node, self.holder) if self.is_test else {})


def guards(source: str) -> list[Guard]:
    """Every guard of a module, in a fixed order: an index into the list names a guard."""
    return [
        Guard(site.within, ast.unparse(site.node), site.node.lineno, site.changes())
        for site in _sites(ast.parse(source))
    ]


def mutated(source: str, index: int, change: str | None) -> str:
    """The module's source with one mutation of one guard; None as the change: with no mutation."""
    tree = ast.parse(source)
    if change is not None:
        site = list(_sites(tree))[index]
        site.replace(ast.parse(site.changes()[change], mode="eval").body)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def instrumented(source: str, first: int) -> str:
    """The module's source with each guard reported to `hits.hit`, numbered from `first`."""
    tree = ast.parse(source)
    sites = list(_sites(tree))
    # Inner guards come later in the list: they are wrapped before the guard that contains them.
    for number, site in reversed(list(enumerate(sites, first))):
        name = ast.Name("_hit", ast.Load())
        site.replace(ast.Call(name, [ast.Constant(number), site.node], []))
    tree.body[_after_future(tree) : 0] = ast.parse(_HIT_IMPORT).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _after_future(tree: ast.Module) -> int:
    """The index of the first statement that is neither docstring nor a `__future__` import."""
    for index, statement in enumerate(tree.body):
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not docstring and not future:
            return index
    return len(tree.body)


def _sites(tree: ast.AST, within: str = "") -> Iterator[_Site]:
    for holder, field, index, child in _children(tree):
        if field in {"annotation", "returns"}:
            continue
        inside = within
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{within}.{child.name}" if within else child.name
        if isinstance(child, ast.expr):
            is_test = _is_test(holder, field) and not _is_fixed(child)
            if is_test or _of_value(child):
                yield _Site(holder, field, index, inside, is_test)
        if not (isinstance(child, ast.If) and _is_fixed(child.test)):
            yield from _sites(child, inside)


def _children(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(tree):
        if isinstance(value, ast.AST):
            yield tree, field, None, value
        elif isinstance(value, list):
            nodes = [(index, one) for index, one in enumerate(value) if isinstance(one, ast.AST)]
            yield from ((tree, field, index, one) for index, one in nodes)


def _is_test(holder: ast.AST, field: str) -> bool:
    return (
        (field == "test" and isinstance(holder, _TESTS))
        or (field == "ifs" and isinstance(holder, ast.comprehension))
        or (field == "guard" and isinstance(holder, ast.match_case))
    )


def _is_fixed(test: ast.expr) -> bool:
    """Whether it is no decision: `while True`, or the imports of a type checker."""
    return isinstance(test, ast.Constant) or ast.unparse(test) == "TYPE_CHECKING"


def _of_test(node: ast.expr, holder: ast.AST) -> dict[str, str]:
    text = ast.unparse(node)
    found = {"negate": f"not ({text})", "always true": "True", "always false": "False"}
    if isinstance(holder, ast.While | ast.Assert):
        del found["always true"]
    return found


def _of_value(node: ast.expr) -> dict[str, str]:
    """The mutations of an operand, a comparison or a condition as a value."""
    if isinstance(node, ast.BoolOp):
        return {
            f"drop operand {number}": _joined(node, number) for number in range(len(node.values))
        }
    if isinstance(node, ast.Compare):
        return _of_comparison(node)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return {}
    if node.func.id in _GROUPS and len(node.args) > 1:
        return {f"drop operand {n}": _without(node, n) for n in range(len(node.args))}
    if node.func.id in _CLAUSES:
        return _of_clause(node)
    return {}


def _joined(node: ast.BoolOp, dropped: int) -> str:
    left = [one for number, one in enumerate(node.values) if number != dropped]
    return ast.unparse(left[0] if len(left) == 1 else ast.BoolOp(node.op, left))


def _of_comparison(node: ast.Compare) -> dict[str, str]:
    found = {"negate": f"not ({ast.unparse(node)})"}
    for number, operator in enumerate(node.ops):
        if type(operator) in _BOUNDARY:
            ops = list(node.ops)
            ops[number] = _BOUNDARY[type(operator)]()
            changed = ast.unparse(ast.Compare(node.left, ops, node.comparators))
            found["boundary" if len(ops) == 1 else f"boundary {number}"] = changed
    return found


def _without(node: ast.Call, dropped: int) -> str:
    left = [one for number, one in enumerate(node.args) if number != dropped]
    return ast.unparse(ast.Call(node.func, left, node.keywords))


def _of_clause(node: ast.Call) -> dict[str, str]:
    found = {"always true": _HOLDS}
    operator = node.args[1] if len(node.args) > 1 else None
    if isinstance(operator, ast.Constant) and operator.value in _BOUNDARY_TEXT:
        arguments = list(node.args)
        arguments[1] = ast.Constant(_BOUNDARY_TEXT[operator.value])
        found["boundary"] = ast.unparse(ast.Call(node.func, arguments, node.keywords))
    return found
