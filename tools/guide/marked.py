"""Tables between two marks of a document, written there again from what the tests know."""

from collections.abc import Iterable, Mapping, Sequence


def with_tables(text: str, made: Mapping[str, str], by: str = "make docs") -> str:
    """A document with its tables as they should be.

    Raises:
        ValueError: it has no place for one of them.
    """
    for name, table in made.items():
        begin, end = f"<!-- {name}: written by `{by}` -->\n", f"<!-- end of {name} -->\n"
        if (text.count(begin), text.count(end)) != (1, 1):
            raise ValueError(f"the document has no one place for the table {name!r}")
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return text


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = "---") -> str:
    """A table as Markdown has it; `numbers` is how all columns but the first are aligned."""
    rule = ["---", *[numbers] * (len(head) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))
