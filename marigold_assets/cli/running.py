"""Around code of users that a command runs: its output, its end, and how long it may take."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, NoReturn

from marigold_assets.cli.failing import CANNOT
from marigold_assets.errors import ConfigurationError

_OUT, _ERR = 1, 2


@contextmanager
def foreign_code(asset: str | None = None, *, seconds: float | None = None) -> Iterator[None]:
    """Have code of users run within the block without harm to what the command says.

    What it prints goes to stderr, also what processes that it starts print. Where it ends this process, the command
    has no verdict, and fails: an exit code of 0 would look like one. That cannot be seen of compiled code that ends
    the process by itself.

    Args:
        asset: What the command is about, if it is one asset.
        seconds: How long the block may take; then the process ends.

    Raises:
        ConfigurationError: The code has asked for the process to end.
    """
    with _to_stderr(), _end_guarded(asset), _limited(asset, seconds):
        try:
            yield
        except SystemExit as error:
            raise _ended(asset, f"sys.exit({error.code!r})") from None


@contextmanager
def _to_stderr() -> Iterator[None]:
    with redirect_stdout(sys.stderr):
        try:
            kept = os.dup(_OUT)
        except OSError:  # there is none
            yield
            return
        try:
            _flush()
            with suppress(OSError):
                os.dup2(_ERR, _OUT)
            yield
        finally:
            _flush()
            os.dup2(kept, _OUT)
            os.close(kept)


def _flush() -> None:
    """Write what Python, and the library of C, still keep for the file descriptor."""
    with suppress(OSError, ValueError, AttributeError):
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)


@contextmanager
def _end_guarded(asset: str | None) -> Iterator[None]:
    """Have ``os._exit`` end the process with an exit code that is no verdict; in children it does what it does."""
    here: int = os.getpid()
    leave: Callable[[int], NoReturn] = os._exit

    def guarded(status: int) -> NoReturn:
        if os.getpid() == here:
            _say(_ended(asset, f"os._exit({status})"))
            leave(CANNOT)
        leave(status)

    module: Any = os
    module._exit = guarded
    try:
        yield
    finally:
        module._exit = leave


@contextmanager
def _limited(asset: str | None, seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return
    leave: Callable[[int], NoReturn] = os._exit

    def end() -> None:
        remedy = "look at what its function waits for, or give it more: --timeout SECONDS"
        _say(ConfigurationError(f"it was not done within {seconds:g} seconds", remedy=remedy, asset=asset))
        for child in multiprocessing.active_children():
            child.kill()
        leave(CANNOT)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _ended(asset: str | None, how: str) -> ConfigurationError:
    return ConfigurationError(
        f"its code has ended the process by {how}, before there was a verdict",
        remedy="have it raise an error instead",
        asset=asset,
    )


def _say(error: ConfigurationError) -> None:
    with suppress(OSError):
        os.write(_ERR, f"Error: {error}\n".encode())
