"""A blocking call as an awaitable. Apart, because asyncio takes long to import."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Run the call in a thread of its own: asyncio's shared ones are too few for a pool of containers.

    When the task is cancelled, `cancel` is called and the call's end awaited before CancelledError goes on.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as problem:  # noqa: BLE001 - a thread's boundary: the awaiting task gets it
            error = problem
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="skillexec-run", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([future])
        raise
