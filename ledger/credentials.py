"""A session of boto3 in a forked process: its credentials without what is the parent's.

The session may be the caller's, with credentials that a function of the caller refreshes. A new
session from the same sources could find other credentials; so the same ones are kept. What a child
cannot use of them is replaced in the child's own memory: the lock of a refresh, which a thread of
the parent may have held, and the connections by which they are refreshed.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from botocore.client import BaseClient
from botocore.session import Session as CoreSession
from urllib3 import PoolManager

from countledger.ledger.processes import abandon, is_forked, this_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    import boto3

_OF_THE_SDK: Final = ("botocore.", "boto3.", "urllib3.")
_RENEWED: Final[WeakKeyDictionary[boto3.Session, tuple[int, int]]] = WeakKeyDictionary()


def renew_in_fork(session: boto3.Session) -> None:
    """Make the credentials of a session this process's own; done once in each, and in forks only.

    What a refresh function of the caller uses is renewed where it is a client of boto3 that the
    function encloses or finds in its module.
    """
    if not is_forked() or _RENEWED.get(session) == this_process():
        return
    core: Any = session._session  # noqa: SLF001 - what it has loaded, without loading any
    left: list[object] = [getattr(core, "_credentials", None), getattr(core, "_auth_token", None)]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            _renew(one)
            left += _parts(one)
    _RENEWED[session] = this_process()


def _renew(one: Any) -> None:  # noqa: ANN401 - whatever credentials hold
    if isinstance(one, PoolManager):
        abandon(one.pools)
        one.pools = type(one.pools)(one.pools._maxsize)  # noqa: SLF001 - as large as it was
    elif _is_of_the_sdk(one) and hasattr(one, "_refresh_lock"):
        one._refresh_lock = Lock()  # noqa: SLF001 - there is no public way


def _parts(one: Any) -> Iterable[object]:  # noqa: ANN401, PLR0911 - one for each kind
    if isinstance(one, BaseClient):
        endpoint: Any = vars(one)["_endpoint"]
        return [endpoint.http_session]  # the rest of it is data
    if isinstance(one, list | tuple | set):
        return list(one)
    if isinstance(one, dict):
        return list(one.values())
    if isinstance(one, partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, FunctionType):
        enclosed = [_content(cell) for cell in one.__closure__ or ()]
        return enclosed + [one.__globals__.get(name) for name in one.__code__.co_names]
    if isinstance(one, CoreSession) or not _is_of_the_sdk(one):
        return []
    return list(getattr(one, "__dict__", {}).values())


def _is_of_the_sdk(one: object) -> bool:
    return not isinstance(one, type) and type(one).__module__.startswith(_OF_THE_SDK)


def _content(cell: Any) -> object:  # noqa: ANN401 - a cell of a closure
    try:
        content: object = cell.cell_contents
    except ValueError:  # not filled yet
        return None
    return content
