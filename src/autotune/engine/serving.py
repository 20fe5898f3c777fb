"""A running vLLM in, its own HTTP server on a free port of this machine out."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from autotune.engine.local import RunningVllm
from autotune.errors import StartFailed


LOOPBACK = "127.0.0.1"
# How long answers that are still being sent may hold up the server's end.
GRACE_S = 2
START_S = 30.0
POLL_S = 0.01


@asynccontextmanager
async def served(running: RunningVllm, *, name: str) -> AsyncIterator[str]:
    """Serve ``running`` as ``name`` in the running event loop; yields the address.

    These are the routes, the middleware and the front end of ``vllm serve``, over
    the engine that is there already. Signals stay with this process, and nothing
    outside the machine can reach the port.

    Raises:
        StartFailed: The server did not come up.
    """
    engine = running._engine  # noqa: SLF001 - the same room
    app = await _application(engine, name)
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        server = _server(app)
        app.state.server = server
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await _started(server, task)
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.wait([task])


async def _application(engine: Any, name: str) -> Any:
    """VLLM's application for ``engine``, as its command line would make it."""
    build_app, init_app_state, make_arg_parser = _entry_points()
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    config = engine.model_config
    words = ["--model", config.model, "--served-model-name", name]
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
    arguments.disable_log_stats = True
    try:
        tasks = await engine.get_supported_tasks()
        app = build_app(arguments, tasks, config)
        await init_app_state(engine, app.state, arguments, tasks)
    except (ValueError, TypeError, RuntimeError, OSError, AttributeError) as error:
        raise StartFailed(f"vLLM's server does not take the engine: {error}") from error
    return app


def _entry_points() -> tuple[Any, Any, Any]:
    """Where this vLLM keeps the parts of its server; they moved after 0.21."""
    try:
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state
        from vllm.entrypoints.launchers.app import build_app
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.api_server import build_app, init_app_state
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    return build_app, init_app_state, make_arg_parser


def _server(app: Any) -> Any:
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        # All that vLLM's lifespan would add is a log of statistics, which is off.
        lifespan="off",
        timeout_graceful_shutdown=GRACE_S,
    )
    server: Any = uvicorn.Server(config)
    server.capture_signals = nullcontext
    return server


async def _started(server: Any, task: asyncio.Task[None]) -> None:
    until_s = time.monotonic() + START_S
    while not server.started:
        if task.done() or time.monotonic() > until_s:
            raise StartFailed("vLLM's server does not listen")
        await asyncio.sleep(POLL_S)
