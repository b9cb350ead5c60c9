"""The commands of calls that are described: arguments, options, rows, documents, exit codes."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import typer

from countledger.infra.calls.call import REQUIRED, Call, KeyParam
from countledger.infra.calls.refusals import REFUSALS, document_of, refusal_of
from countledger.infra.calls.shapes import View, plain
from countledger.infra.cli.app import (
    AtMost,
    BadUsage,
    Options,
    SignedCommand,
    Yes,
    confirm,
    parse_pairs,
    shared,
)
from countledger.infra.cli.output import (
    Unread,
    notice,
    open_progress,
    show,
    show_json,
    show_views,
)
from countledger.ledger.amount import Amount
from countledger.ledger.ids import check_key
from countledger.ledger.values import parse_time
from countledger.producers.payload import keyed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger import IdempotencyKey
    from countledger.infra.calls.call import Calls, Op, Parameter


def commands_of(calls: Calls, *more: Calls) -> typer.Typer:
    """A group with a command for each call that is one; others are added by hand.

    The group is that of the first domain, and has the commands of the other ones as well.
    """
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

    def group(_options: Options) -> None: ...

    group.__doc__ = calls.help
    app.callback()(shared(group))
    for op in [op for one in (calls, *more) for op in one.ops]:
        if op.command:
            app.command(op.name, cls=_class_of(op))(command_of(op))
    return app


def in_order(app: typer.Typer, names: str) -> None:
    """Let the help of a group list its commands so, those by hand among the others."""
    order = names.split()
    app.registered_commands.sort(key=lambda one: order.index(one.name or ""))


def command_of(op: Op) -> Callable[..., int | None]:
    """The command of one call."""
    mine = [one for one in op.parameters if one.is_of("command")]

    def command(options: Options, /, **texts: Any) -> int:  # noqa: ANN401 - as typed
        # What can be refused is refused before anything is looked up.
        most = texts.pop("limit") if op.is_paged else None
        sure = texts.pop("yes", True)
        given = {one.name: _value(one, texts) for one in mine if _is_given(one, texts)}
        if isinstance(op.confirm, str) and not sure:
            _ask(op.confirm.format(**given))
        with ExitStack() as shown:
            call = Call(
                options.client(),
                progress=lambda label: _bar(shown, label),
                # One more is read to see whether there are others.
                most=None if most is None else most + 1,
            )
            if callable(op.confirm) and not sure:
                _ask(op.confirm(call, **given))
            result = op.function(call, **given)
        if op.is_list:
            return _show_list(options, call, result, most)
        return _show(options, result, given)

    own = [inspect.Parameter("options", _EITHER, annotation=Options)]
    for one in mine:
        own += _options_of(one)
    if op.is_paged:
        own.append(_option("limit", AtMost, None))
    if op.confirm is not None:
        own.append(_option("yes", Yes, False))
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    command.__doc__ = op.help
    command.__name__ = op.function.__name__
    return shared(command)


def _ask(question: str) -> None:
    if not confirm(question, f"{question.removesuffix('?')}: give --yes"):
        raise typer.Abort


_EITHER: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _option(name: str, annotation: Any, default: Any = REQUIRED) -> inspect.Parameter:  # noqa: ANN401 - types
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _class_of(op: Op) -> type[typer.core.TyperCommand]:
    """Of a command whose last argument is an amount, which may be negative."""
    arguments = [one.kind for one in op.parameters if one.positional]
    signed = bool(arguments) and arguments[-1] == Amount
    return SignedCommand if signed else typer.core.TyperCommand


def _options_of(one: Parameter) -> list[inspect.Parameter]:
    """A parameter as Typer reads it: a text, unless JSON's form is that of the command line."""
    if one.key is not None:
        return _key_options(one.name, one.key)
    said = one.param
    kind, default = _typed(one), one.default
    plain_default = said.text is None and isinstance(default, bool | int | str | None)
    if default is not REQUIRED and not plain_default:
        default = None  # what is not given keeps the default of the function
    if default is None:
        kind |= None
    if one.positional:
        found: Any = typer.Argument(help=said.help, metavar=said.metavar)
    else:
        names = [said.option] if said.option else []
        if get_origin(one.kind) is None and one.kind is bool and not names:
            names = [f"--{one.name.replace('_', '-')}"]
        found = typer.Option(*names, help=said.help, metavar=said.metavar)
    return [_option(one.name, Annotated[kind, found], default)]


def _typed(one: Parameter) -> Any:  # noqa: ANN401 - a type
    is_list = get_origin(one.kind) in {list, dict}
    if one.text is not None or one.param.text is not None or get_origin(one.kind) is dict:
        return list[str] if is_list else str
    if is_list and get_origin(item := get_args(one.kind)[0]) is Annotated:
        return list[get_args(item)[0]]  # type: ignore[misc]  # without what is said of each
    if get_origin(one.kind) is Literal and one.optional and one.param.none:
        return str
    return one.kind


def _key_options(name: str, said: KeyParam) -> list[inspect.Parameter]:
    key: Any = typer.Option(help=said.help)
    at = typer.Option(
        metavar="TIME", help="The time of the key; if given, it is part of the idempotency key."
    )
    return [
        _option(name, Annotated[str, key])
        if said.command
        else _option(name, Annotated[str | None, key], None),
        _option("at", Annotated[str | None, at], None),
    ]


def _is_given(one: Parameter, texts: dict[str, Any]) -> bool:
    """Whether the function gets it: what is not given has the function's default."""
    if one.key is not None and texts.get("at") is not None:
        return True  # a time without a key is refused
    return one.default is REQUIRED or texts.get(one.name) not in (None, [])


def _value(one: Parameter, texts: dict[str, Any]) -> Any:  # noqa: ANN401 - of any type
    text, said = texts[one.name], one.param
    if one.key is not None:
        return _key(text, texts.get("at"))
    if said.none is not None and isinstance(text, str) and text.strip().lower() == said.none:
        return None
    if said.text is not None:
        return said.text(text)
    if get_origin(one.kind) is dict:
        return parse_pairs(one.name, said.metavar or "NAME=VALUE", text, BadUsage)
    if one.text is not None:
        return (
            [one.text.check(each) for each in text]
            if isinstance(text, list)
            else one.text.check(text)
        )
    return text


def _key(text: str | None, at: str | None) -> str | IdempotencyKey | None:
    return keyed(None if text is None else check_key(text), None if at is None else parse_time(at))


def _bar(shown: ExitStack, label: str) -> Callable[[int], None]:
    return shown.enter_context(open_progress()).add(label).set


def _show(options: Options, result: object, given: dict[str, Any]) -> int:
    """Print a result, or an outcome that is no success; the exit code."""
    if result is None:
        show(options, [given], plain(given))
        return 0
    if type(result) in REFUSALS:
        if options.json:
            show_json(document_of(result))
        meaning = refusal_of(result)
        notice(f"countledger: {meaning.sentence(result)}")
        return meaning.exit_code
    if not isinstance(result, View):
        raise AssertionError(f"{result!r} is no view")  # noqa: TRY004 - of our own
    show(options, [result.row()], result.document())
    for line in result.notices():
        notice(line)
    return result.exit_code


def _show_list(options: Options, call: Call, found: Iterator[View], most: int | None) -> int:
    """Print views as they come, then name what could not be read."""
    return show_views(options, found, most, Unread(call.unread))
