"""A `Store`: the versions of task state and the output buffers that one node holds for one run.

In the node, a task has three hashes: manifests by version, segments by digest, outputs by version. Every change is one atomic
transaction or script, so a manifest never names a segment that the node does not have, and a version is stored completely or
not at all. Everything that is read is checked against its digest or seal: damaged data counts as missing.
"""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from ppa_core.closeable import Closeable
from ppa_core.errors import BadInput
from ppa_core.nodes.errors import LeaseLost, NodeDataLost, NodeDown, NodeFull, NodeSlow
from ppa_core.nodes.format import (
    COMMIT,
    KEEP_NEWEST,
    SET_MARK,
    SWEEP,
    UNLINK_IF,
    epoch_key,
    ledger_key,
    manifest_json,
    manifests_key,
    mark_key,
    outputs_key,
    parse_manifest,
    seal,
    segments_key,
    unseal,
    version_field,
)
from ppa_core.pipeline.tables import digest
from ppa_core.placement.nodes import Node
from ppa_core.redis_client import open_redis
from ppa_core.safety.names import check_run

__all__ = ["NodeDataLost", "NodeDown", "NodeFull", "NodeSlow", "Store"]

CONNECT_TIMEOUT = 0.5
SOCKET_TIMEOUT = 5.0
_READ_SIZE = 1 << 17
"""A compromise: a larger one reads large segments faster, but makes every small answer slower."""


_SILENCE = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EAGAIN}
"""Errors that say that nothing arrives there, not that the server has ended: its data may still be there."""


class Store(Closeable):
    """One node's data of the run `run`. Connects when first used; can be shared by threads.

    Every method raises NodeDown if the node cannot be reached or the connection breaks, and BadInput if the password is wrong.
    There are no retries: a call ends within the timeouts.
    """

    def __init__(self, node: Node, run: str, timeout: float = SOCKET_TIMEOUT) -> None:
        self.node = node
        self.run = check_run(run)
        self._client = open_redis(node.url, timeout, CONNECT_TIMEOUT, socket_read_size=_READ_SIZE)
        self.epoch = 0
        """The epoch of the driver that uses this store; a node that knows a newer one refuses what could do harm: LeaseLost."""
        self._commit = self._client.register_script(COMMIT)
        self._mark: bytes | None = None
        self._loaded = False

    def __repr__(self) -> str:
        return f"Store({self.node.name!r}, {self.run!r})"

    def close(self) -> None:
        self._client.close()

    def write(
        self,
        task: str,
        batch: int,
        attempt: int,
        manifest: Mapping[str, str],
        segments: Mapping[str, bytes],
        output: bytes,
        checksum: str = "",
    ) -> None:
        """Add a version, completely or not at all, in one round trip; the first time, a script is loaded before.

        `segments` (digest to bytes) are those that the node may not have; all others of the manifest must be stored already,
        else NodeDataLost. Writing a version again changes nothing. NodeFull if it does not fit. `checksum` is the output's
        digest, so that a caller who writes to several nodes computes it only once.
        """
        manifests, stored, outputs = (key(self.run, task) for key in (manifests_key, segments_key, outputs_key))
        field = version_field(batch, attempt)
        sealed_manifest = seal(manifest_json(dict(manifest)), manifests, field)
        sealed_output = seal(output, outputs, field, checksum)

        def transaction() -> int:
            with self._client.pipeline(transaction=True) as pipe:
                if segments:
                    pipe.hset(stored, mapping=segments)
                pipe.hset(outputs, field, sealed_output)
                pipe.evalsha(self._commit.sha, 2, manifests, stored, field, sealed_manifest, *set(manifest.values()))
                return int(pipe.execute()[-1])

        with self._guard(sum(map(len, segments.values())) + len(output)):
            self._load(again=False)  # once: redis-py would check before every transaction that the server has the script
            try:
                lacking = transaction()
            except NoScriptError:  # the server was restarted in between
                self._load(again=True)
                lacking = transaction()
        if lacking:
            raise NodeDataLost(self.node.name, f"{lacking} segments of {task} that it held before are missing")

    def write_output(self, task: str, batch: int, attempt: int, output: bytes, checksum: str = "") -> None:
        """Add an output to the output buffer, without a version."""
        key, field = outputs_key(self.run, task), version_field(batch, attempt)
        with self._guard(len(output)):
            self._client.hset(key, field, seal(output, key, field, checksum))

    def manifest(self, task: str, batch: int, attempt: int) -> dict[str, str] | None:
        """The segments of a version, name to digest; None if the node does not hold the version."""
        key, field = manifests_key(self.run, task), version_field(batch, attempt)
        with self._guard():
            kept = self._client.hget(key, field)
        content = None if kept is None else unseal(kept, key, field)
        return None if content is None else parse_manifest(content)

    def segments(self, task: str, digests: Collection[str]) -> dict[str, bytes]:
        """The bytes of those segments that the node has, by digest."""
        wanted = list(digests)
        if not wanted:
            return {}
        with self._guard():
            found = self._client.hmget(segments_key(self.run, task), wanted)
        both = zip(wanted, found, strict=True)
        return {name: content for name, content in both if content is not None and digest(content) == name}

    def outputs(self, versions: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        """The outputs of many (task, batch, attempt), in the same order, in one round trip; None for each that is missing."""
        places = [(outputs_key(self.run, task), version_field(batch, attempt)) for task, batch, attempt in versions]
        with self._guard(), self._client.pipeline(transaction=False) as pipe:
            for place in places:
                pipe.hget(*place)
            found = pipe.execute()
        return [None if kept is None else unseal(kept, *place) for place, kept in zip(places, found, strict=True)]

    def lacking(self, task: str, digests: Collection[str]) -> set[str]:
        """The digests whose segments the node does not have."""
        wanted = list(digests)
        with self._guard(), self._client.pipeline(transaction=False) as pipe:
            for name in wanted:
                pipe.hexists(segments_key(self.run, task), name)
            there = pipe.execute()
        return {name for name, found in zip(wanted, there, strict=True) if not found}

    def sweep(self, task: str, keep: Collection[tuple[int, int]], outputs_from: int) -> None:
        """Delete all versions of the task except those (batch, attempt) in `keep`, segments that no remaining manifest names,
        and outputs of batches before `outputs_from`.

        What later attempts than all in `keep` wrote stays, because it may be in progress. With an empty `keep` nothing stays.
        """
        keys = (manifests_key(self.run, task), segments_key(self.run, task), outputs_key(self.run, task))
        with self._guard():
            self._fenced(SWEEP, keys, [outputs_from, *(version_field(b, a) for b, a in keep)])

    def drop(self, task: str) -> None:
        """Delete all data of the task in this node, unless the node is marked anew before the request arrives."""
        keys = [mark_key(self.run), *(key(self.run, task) for key in (manifests_key, segments_key, outputs_key))]
        with self._guard():
            if self._mark is None:
                self._mark = self._client.get(keys[0])
            self._fenced(UNLINK_IF, keys, [self._mark or b""])

    def write_ledger(self, number: int, text: str) -> None:
        """Write the driver's ledger; it replaces one with a lower number."""
        key = ledger_key(self.run)
        with self._guard(len(text)):
            self._fenced(KEEP_NEWEST, [key], [number, seal(text.encode(), key, str(number))])

    def read_ledger(self) -> tuple[int, str] | None:
        """The number and text of the driver's ledger; None if this node has none. NodeDataLost if it is damaged."""
        key = ledger_key(self.run)
        with self._guard():
            number, kept = self._client.hmget(key, ("number", "text"))
        if number is None and kept is None:
            return None
        text = None
        if kept is not None and re.fullmatch(rb"\d{1,18}", number or b""):
            text = unseal(kept, key, number.decode())
        if text is None:
            raise NodeDataLost(self.node.name, f"its ledger of run {self.run!r} is damaged")
        return int(number), text.decode(errors="replace")

    def ping(self) -> None:
        """Check that the node answers."""
        with self._guard():
            self._client.ping()

    def server_info(self) -> dict[str, Any]:
        """The INFO server section of the node's server."""
        return self._info("server")

    def mark(self) -> None:
        """Set the run's mark: as long as it is there, the node has not lost its data."""
        self._mark = secrets.token_hex(8).encode()
        with self._guard():
            self._fenced(SET_MARK, [mark_key(self.run)], [self._mark])

    def marked(self) -> bool:
        """Whether the run's mark is there: a node without it was restarted or cleared, or never used."""
        with self._guard():
            return bool(self._client.exists(mark_key(self.run)))

    def forget(self) -> None:
        """Delete all data of this run in this node, the mark first."""
        cursor, keys, mark = -1, f"ppa:{self.run}:*", mark_key(self.run)
        with self._guard():
            self._fenced(SET_MARK, [mark], [b""])
            while cursor:
                cursor, found = self._client.scan(max(cursor, 0), keys, count=1000)
                if found:
                    self._fenced(UNLINK_IF, [mark, *found], [b""])

    def used_memory(self) -> int:
        """The used memory in bytes, as counted for the memory limit."""
        return int(self._info("memory")["used_memory"])

    def _fenced(self, script: str, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> None:
        """Run a script that a newer driver's epoch forbids. LeaseLost if there is one."""
        run = self._client.register_script(script)
        if run([epoch_key(self.run), *keys], [self.epoch, *arguments]) == -1:
            raise LeaseLost(self.run)

    def _load(self, again: bool) -> None:
        if again or not self._loaded:
            self._client.script_load(self._commit.script)
            self._loaded = True

    def _info(self, section: str) -> dict[str, Any]:
        with self._guard():
            return cast(dict[str, Any], self._client.info(section))

    @contextmanager
    def _guard(self, size: int = 0) -> Iterator[None]:
        """Convert exceptions of redis-py to errors of this project, without passwords."""
        try:
            yield
        except NoPermissionError as error:
            remedy = f"its user lacks permissions that a run needs ({self._reason(error)}); set the rules in docs/cluster.md"
            raise BadInput(f"node {self.node.name}", remedy) from error
        except (AuthenticationError, AuthorizationError) as error:
            remedy = f"it refuses the user or password in its URL ({self._reason(error)}); correct them in the nodes file"
            raise BadInput(f"node {self.node.name}", remedy) from error
        except OutOfMemoryError as error:
            raise NodeFull(self.node.name, size) from error
        except ResponseError as error:
            if "OOM" in str(error):
                raise NodeFull(self.node.name, size) from error
            raise NodeDown(self.node.name, f"it refuses a command: {self._reason(error)}") from error
        except RedisTimeoutError as error:
            raise NodeSlow(self.node.name, self._reason(error)) from error
        except (RedisError, OSError) as error:
            kind = NodeSlow if _is_silence(error) else NodeDown
            raise kind(self.node.name, self._reason(error), _is_refused(error)) from error

    def _reason(self, error: Exception) -> str:
        return self.node.hide(str(error) or type(error).__name__)[:300]


def _is_silence(error: BaseException | None) -> bool:
    """Whether the reason of an error is that nothing arrives at the node."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _SILENCE:
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_refused(error: BaseException | None) -> bool:
    """Whether the reason of an error is that nobody listens at the node's address."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            return True
        error = error.__cause__ or error.__context__
    return False
