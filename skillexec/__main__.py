"""The console script, and python -m skillexec."""

from __future__ import annotations

import gc

_ALLOCATIONS = 50_000  # between two searches for garbage; Python's own 700 suit programs that import less


def _leave(status: object) -> None:
    """End the process without taking the interpreter apart first: that was a tenth of what a run took."""
    import atexit
    import os
    import sys

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it any more; the boundary has decided what that means
    os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    # What is imported stays until the end. Looking for garbage in it, while it grows and once more when the
    # interpreter shuts down, was a sixth of what `skillexec --help` took; so it is done seldom, and not at the end.
    gc.disable()
    from skillexec.cli.boundary import main as run

    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
    gc.enable()
    try:
        run(arguments)
    except SystemExit as end:
        if arguments is not None:
            raise
        _leave(end.code)
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
