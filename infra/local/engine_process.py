"""The embedded engine's process: MiniStack on an inherited socket, with its gaps patched by name.

Run by `engine.py` as a script of its own, and never imported elsewhere: importing MiniStack reads
the environment. Of countledger it imports other patches alone.

When the pipe from the parent ends (also after a kill -9 of the parent), this process ends, with the
workers of its functions and its temporary directory.
"""

import argparse
import asyncio
import decimal
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil
from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config
from ministack import app
from ministack.core import lambda_runtime, router
from ministack.services import dynamodb

from countledger.infra.local.engine_guard import guarded
from countledger.infra.local.engine_memory import Saver, patch_sequence_numbers_never_go_back
from countledger.infra.local.engine_patches import (
    IAM_PATCHES,
    REFUSALS,
    REPLICA_PATCHES,
    TEMPLATE_PATCHES,
)

DYNAMODB_DIGITS: Final = 38
_EXACT: Final = decimal.Context(
    prec=DYNAMODB_DIGITS,
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow, decimal.Inexact],
)
_LEADING_ON: Final = ("lambda", "sqs", "sns", "eventbridge", "sfn", "scheduler")


# ---- gaps of MiniStack 1.5.33, each with what AWS does instead ----


def patch_38_digit_arithmetic() -> None:
    """Sums keep 38 digits, and one that needs more is refused. MiniStack rounds to 28."""

    def exact(apply: Callable[..., None]) -> Callable[..., None]:
        def applied(*args: object) -> None:
            with decimal.localcontext(_EXACT):
                try:
                    apply(*args)
                except decimal.Inexact:
                    raise ValueError(
                        f"Number overflow: the result has more than {DYNAMODB_DIGITS} digits"
                    ) from None

        return applied

    # It has no seam, so its own functions are wrapped.
    dynamodb._apply_add = exact(dynamodb._apply_add)  # noqa: SLF001
    dynamodb._apply_set = exact(dynamodb._apply_set)  # noqa: SLF001


def patch_loopback_is_secure() -> None:
    """A call over loopback passes `aws:SecureTransport`: there is no TLS on 127.0.0.1."""
    pin = app.pin_request_origin
    app.pin_request_origin = lambda source_ip, _secure: pin(source_ip, True)


def patch_lineage_stays_out_of_tables() -> None:
    """Calls on items carry no depth of invocations: the fast transport makes them, as on AWS."""
    everywhere = 'append(("before-call", _ms_add_invoke_depth))'
    events = ", ".join(f'("before-call.{name}", _ms_add_invoke_depth)' for name in _LEADING_ON)
    head, found, rest = lambda_runtime._PYTHON_WORKER_SCRIPT.partition(everywhere)  # noqa: SLF001
    if not found:
        raise RuntimeError("MiniStack adds the depth of invocations in another way")
    lambda_runtime._PYTHON_WORKER_SCRIPT = f"{head}extend([{events}]){rest}"  # noqa: SLF001


def patch_service_quotas_is_a_service() -> None:
    """Service Quotas is refused at once: MiniStack loads all of AWS's models to look for it."""
    plain = router._is_aws_service_name  # noqa: SLF001 - it has no seam
    router._is_aws_service_name = lambda name: name == "servicequotas" or plain(name)  # noqa: SLF001


PATCHES = (
    patch_38_digit_arithmetic,
    patch_loopback_is_secure,
    patch_lineage_stays_out_of_tables,
    patch_service_quotas_is_a_service,
    patch_sequence_numbers_never_go_back,
)


# ---- life and death ----

_SAVING_MAX_S: Final = 60.0


class ParentWatch:
    """Ends this process, with all that it has on disk, when the pipe from its parent ends."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        # Set by `serve`: asks it to end in order, so that it can save its memory first.
        self.end: Callable[[], object] | None = None
        self.ended = threading.Event()
        self.parent_ended = threading.Event()

    def run(self) -> None:
        while os.read(self._pipe, 1):
            pass
        self.parent_ended.set()
        if self.end is not None:
            self.end()
            self.ended.wait(_SAVING_MAX_S)
        home = tempfile.gettempdir()
        # First those that could still write, then what they wrote, then ourselves (the group's
        # leader).
        _kill_children()
        shutil.rmtree(home, ignore_errors=True)
        os.killpg(os.getpgid(0), signal.SIGKILL)


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
        child.wait()


async def serve(socket_fd: int, saver: Saver | None, watch: ParentWatch) -> None:
    """Serve MiniStack, guarded, on the inherited socket until a SIGTERM or SIGINT; then save it."""
    config = Config()
    config.bind = [f"fd://{socket_fd}"]
    config.keep_alive_timeout = 75
    config.graceful_timeout = 1
    config.loglevel = "WARNING"
    served: Any = guarded(app.app)  # its types say less than those of hypercorn
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if saver is None:
        await hypercorn_serve(served, config, shutdown_trigger=stop.wait)
        return
    loop.add_signal_handler(signal.SIGUSR1, saver.begin)
    watch.end = lambda: loop.call_soon_threadsafe(stop.set)
    saving = asyncio.create_task(saver.save_regularly(stop))
    await hypercorn_serve(served, config, shutdown_trigger=stop.wait)
    await saving
    saver.save_at_the_end()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent-fd", type=int, required=True)
    parser.add_argument("--save-in", type=Path)
    parser.add_argument("--facts")
    arguments = parser.parse_args()
    watch = ParentWatch(arguments.parent_fd)
    watching = threading.Thread(target=watch.run, daemon=True)
    watching.start()
    for patch in (*PATCHES, *IAM_PATCHES, *TEMPLATE_PATCHES, *REFUSALS, *REPLICA_PATCHES):
        patch()
    saver = Saver(arguments.save_in, arguments.facts) if arguments.save_in else None
    try:
        asyncio.run(serve(arguments.socket_fd, saver, watch))
    finally:
        watch.ended.set()
        if watch.parent_ended.is_set():
            watching.join()  # it deletes what is on disk, and ends this process


if __name__ == "__main__":
    main()
