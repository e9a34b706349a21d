"""A `Store`: the versions of task state, and the output buffers, that one node holds for one run.

In the node a task has three hashes: its manifests by version, its segments by digest, its outputs by version. Every change
is one atomic transaction or script, so at any moment a manifest in a node names only segments that the node has, and a version
is there wholly or not at all. What is read is compared with its digest or seal: what is damaged counts as not there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

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

from ppa_core.errors import BadInput
from ppa_core.nodes.errors import NodeDataLost, NodeDown, NodeFull, NodeSlow
from ppa_core.nodes.format import (
    COMMIT,
    SWEEP,
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
"""A compromise: a larger one reads large segments faster, but costs time at every small answer."""


class Store:
    """One node's content for the run `run`. Connects when first used; may be shared by threads.

    Every method raises NodeDown if the node cannot be reached or breaks off, and BadInput if it refuses the password.
    Nothing is tried twice: a call ends within the timeouts.
    """

    def __init__(self, node: Node, run: str, timeout: float = SOCKET_TIMEOUT) -> None:
        self.node = node
        self.run = check_run(run)
        self._client = open_redis(node.url, timeout, CONNECT_TIMEOUT, socket_read_size=_READ_SIZE)
        self._commit, self._sweep = map(self._client.register_script, (COMMIT, SWEEP))
        self._loaded = False

    def __repr__(self) -> str:
        return f"Store({self.node.name!r}, {self.run!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

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
        """Add a version: all of it or nothing, in one round trip; the first time the node gets a script as well.

        `segments` (digest to bytes) are those that the node may lack; the manifest's others must be there already, else
        NodeDataLost. Writing a version again changes nothing. NodeFull if it does not fit. `checksum` is the output's digest:
        who writes to several nodes needs it only once.
        """
        self._put(task, (batch, attempt), manifest, segments, {(batch, attempt): output}, checksum)

    def write_output(self, task: str, batch: int, attempt: int, output: bytes, checksum: str = "") -> None:
        """Add to the output buffer alone."""
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
        """The bytes of those segments that the node has."""
        wanted = list(digests)
        if not wanted:
            return {}
        with self._guard():
            found = self._client.hmget(segments_key(self.run, task), wanted)
        both = zip(wanted, found, strict=True)
        return {name: content for name, content in both if content is not None and digest(content) == name}

    def output(self, task: str, batch: int, attempt: int) -> bytes | None:
        """What the task put out in that batch and attempt; None if the node does not hold it."""
        return self.outputs([(task, batch, attempt)])[0]

    def outputs(self, versions: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        """The outputs of many (task, batch, attempt) in their order, in one round trip; None for each that is not there."""
        places = [(outputs_key(self.run, task), version_field(batch, attempt)) for task, batch, attempt in versions]
        with self._guard(), self._client.pipeline(transaction=False) as pipe:
            for place in places:
                pipe.hget(*place)
            found = pipe.execute()
        return [None if kept is None else unseal(kept, *place) for place, kept in zip(places, found, strict=True)]

    def lacking(self, task: str, digests: Collection[str]) -> set[str]:
        """Those of the digests whose segments the node does not have."""
        wanted = list(digests)
        with self._guard(), self._client.pipeline(transaction=False) as pipe:
            for name in wanted:
                pipe.hexists(segments_key(self.run, task), name)
            there = pipe.execute()
        return {name for name, found in zip(wanted, there, strict=True) if not found}

    def versions(self, task: str) -> set[tuple[int, int]]:
        """All (batch, attempt) of the task that the node holds."""
        with self._guard():
            fields = self._client.hkeys(manifests_key(self.run, task))
        found = (re.fullmatch(rb"(-?\d{1,18}):(\d{1,18})", field) for field in fields)
        return {(int(one[1]), int(one[2])) for one in found if one}

    def copy_version(
        self, target: Store, task: str, batch: int, attempt: int, outputs: Collection[tuple[int, int]] = ()
    ) -> int | None:
        """Copy a version and the outputs of the given (batch, attempt) to `target`, sending only segments that it lacks.

        Answers the bytes of segments and outputs sent; None, with nothing written, if this node does not hold all of it.
        """
        manifest = self.manifest(task, batch, attempt)
        if manifest is None:
            return None
        buffered = dict(zip(outputs, self.outputs([(task, b, a) for b, a in outputs]), strict=True))
        found = {version: content for version, content in buffered.items() if content is not None}
        if len(found) < len(buffered):
            return None
        try:
            return self._send(target, task, (batch, attempt), manifest, target.lacking(task, set(manifest.values())), found)
        except NodeDataLost:  # swept there in between
            return self._send(target, task, (batch, attempt), manifest, set(manifest.values()), found)

    def sweep(self, task: str, keep: Collection[tuple[int, int]], outputs_from: int) -> None:
        """Remove all versions of the task but those (batch, attempt) in `keep`, segments that no manifest left names, and
        outputs of batches before `outputs_from`.

        Versions of later attempts than all in `keep` stay, for they may be under way. With an empty `keep` nothing stays.
        """
        keys = (manifests_key(self.run, task), segments_key(self.run, task), outputs_key(self.run, task))
        with self._guard():
            self._sweep(keys, [outputs_from, *(version_field(b, a) for b, a in keep)])

    def drop(self, task: str) -> None:
        """Remove all that the node holds of the task."""
        with self._guard():
            self._client.unlink(*(key(self.run, task) for key in (manifests_key, segments_key, outputs_key)))

    def write_ledger(self, number: int, text: str) -> None:
        """Keep the driver's ledger, in place of the one before."""
        key = ledger_key(self.run)
        with self._guard(len(text)):
            self._client.hset(key, mapping={"number": number, "text": seal(text.encode(), key, str(number))})

    def read_ledger(self) -> tuple[int, str] | None:
        """The driver's ledger and its number; None if this node has none. NodeDataLost if it is damaged."""
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
        """Return if the node answers."""
        with self._guard():
            self._client.ping()

    def server_info(self) -> dict[str, Any]:
        """What the node's server says that it is."""
        return self._info("server")

    def mark(self) -> None:
        """Leave the run's mark: as long as it is there, the node has lost nothing since."""
        with self._guard():
            self._client.set(mark_key(self.run), "1")

    def marked(self) -> bool:
        """Whether the run's mark is there: a node without it was restarted, or never used."""
        with self._guard():
            return bool(self._client.exists(mark_key(self.run)))

    def forget(self) -> None:
        """Remove all that the node holds of this run."""
        cursor, keys = -1, f"ppa:{self.run}:*"
        with self._guard():
            while cursor:
                cursor, found = self._client.scan(max(cursor, 0), keys, count=1000)
                if found:
                    self._client.unlink(*found)

    def used_memory(self) -> int:
        """Bytes that the node's memory bound counts."""
        return int(self._info("memory")["used_memory"])

    def _send(
        self,
        target: Store,
        task: str,
        version: tuple[int, int],
        manifest: Mapping[str, str],
        digests: set[str],
        outputs: Mapping[tuple[int, int], bytes],
    ) -> int | None:
        segments = self.segments(task, digests)
        if len(segments) < len(digests):
            return None
        target._put(task, version, manifest, segments, outputs)
        return _size(segments) + _size(outputs)

    def _put(
        self,
        task: str,
        version: tuple[int, int],
        manifest: Mapping[str, str],
        segments: Mapping[str, bytes],
        outputs: Mapping[tuple[int, int], bytes],
        checksum: str = "",
    ) -> None:
        keys, field = (manifests_key(self.run, task), segments_key(self.run, task)), version_field(*version)
        commit = (*keys, field, seal(manifest_json(dict(manifest)), keys[0], field), *set(manifest.values()))
        key, fields = outputs_key(self.run, task), {version_field(*written): content for written, content in outputs.items()}
        sealed = {written: seal(content, key, written, checksum) for written, content in fields.items()}

        def transaction() -> int:
            with self._client.pipeline(transaction=True) as pipe:
                if segments:
                    pipe.hset(keys[1], mapping=segments)
                if sealed:
                    pipe.hset(key, mapping=sealed)
                pipe.evalsha(self._commit.sha, len(keys), *commit)
                return int(pipe.execute()[-1])

        with self._guard(_size(segments) + _size(outputs)):
            self._load(again=False)  # once: redis-py would ask before every transaction whether the server has the script
            try:
                lacking = transaction()
            except NoScriptError:  # the server was restarted in between; what it has now is written again
                self._load(again=True)
                lacking = transaction()
        if lacking:
            raise NodeDataLost(self.node.name, f"it lacks {lacking} segments of {task} that it held before")

    def _load(self, again: bool) -> None:
        if again or not self._loaded:
            self._client.script_load(self._commit.script)
            self._loaded = True

    def _info(self, section: str) -> dict[str, Any]:
        with self._guard():
            return cast(dict[str, Any], self._client.info(section))

    @contextmanager
    def _guard(self, size: int = 0) -> Iterator[None]:
        """Turn what redis-py raises into errors of this project, none of which shows the password."""
        try:
            yield
        except NoPermissionError as error:
            remedy = f"its user may not do what a run needs ({self._reason(error)}); give it the rules in docs/cluster.md"
            raise BadInput(f"node {self.node.name}", remedy) from error
        except (AuthenticationError, AuthorizationError) as error:
            remedy = (
                f"it refuses the user or password in its url ({self._reason(error)}); put the right ones into the nodes file"
            )
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
            raise NodeDown(self.node.name, self._reason(error)) from error

    def _reason(self, error: Exception) -> str:
        return self.node.hide(str(error) or type(error).__name__)[:300]


def _size(contents: Mapping[Any, bytes]) -> int:
    return sum(map(len, contents.values()))
