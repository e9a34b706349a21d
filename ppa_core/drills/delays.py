"""A proxy in front of a node's socket that delays the node's answers: a slow network, disk or machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from ppa_core.closeable import Closeable
from ppa_core.placement.nodes import Node

_CHUNK = 1 << 18


class Delays(Closeable):
    """Proxies for nodes on Unix sockets, in a thread. `nodes` are the same nodes behind their proxies."""

    def __init__(self, nodes: Iterable[Node], folder: Path) -> None:
        self._seconds: dict[str, float] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self.nodes: dict[str, Node] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="ppa-delays", daemon=True)
        self._thread.start()
        for node in nodes:
            path, socket = folder / f"{node.name}.slow", unquote(urlsplit(node.url).path)
            asyncio.run_coroutine_threadsafe(self._listen(node.name, path, socket), self._loop).result()
            self.nodes[node.name] = replace(node, url=node.url.replace(quote(socket), quote(str(path))))

    def close(self) -> None:
        """Stop listening."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        relays = asyncio.all_tasks() - {asyncio.current_task()}
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    def set(self, name: str, seconds: float) -> None:
        """Delay every answer of a node from now on."""
        self._seconds[name] = seconds

    async def _listen(self, name: str, path: Path, socket: str) -> None:
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.CancelledError):
                answers, requests = await asyncio.open_unix_connection(socket, limit=_CHUNK)
                await asyncio.gather(self._pass(None, reader, requests), self._pass(name, answers, writer))
            writer.close()

        self._servers.append(await asyncio.start_unix_server(relay, path, limit=_CHUNK))

    async def _pass(self, delayed: str | None, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while content := await source.read(_CHUNK):
                if delayed is not None and (seconds := self._seconds.get(delayed, 0.0)):
                    await asyncio.sleep(seconds)
                target.write(content)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()
