"""How a node stores a run: the keys, the scripts that change them, and the checksums that detect damage.

A segment is named by the digest of its bytes. All other values are sealed: they start with a digest of their bytes, key and
field, which detects a flipped bit and also a value under a wrong key. A seal contains no secret: it detects damage, not
forgery.
"""

from __future__ import annotations

import json
from hashlib import blake2b

from ppa_core.pipeline.tables import digest

_SEAL = 16
"""Bytes of a seal; the scripts below use the same number."""


def manifests_key(run: str, task: str) -> str:
    """A hash: version to manifest as sealed JSON."""
    return f"ppa:{run}:manifests:{task}"


def segments_key(run: str, task: str) -> str:
    """A hash: digest to bytes."""
    return f"ppa:{run}:segments:{task}"


def outputs_key(run: str, task: str) -> str:
    """A hash: version to sealed bytes."""
    return f"ppa:{run}:outputs:{task}"


def ledger_key(run: str) -> str:
    """A hash: the driver's ledger as sealed JSON, and its number."""
    return f"ppa:{run}:ledger"


def mark_key(run: str) -> str:
    """A string, random: set when the run started to use the node; missing if the node has lost its data since."""
    return f"ppa:{run}:mark"


def version_field(batch: int, attempt: int) -> str:
    return f"{batch}:{attempt}"


def seal(content: bytes, key: str, field: str, checksum: str = "") -> bytes:
    """The content as stored under a key and field. `checksum` is its digest, if it is known already."""
    return _seal(checksum or digest(content), key, field) + content


def unseal(kept: bytes, key: str, field: str) -> bytes | None:
    """The content that was sealed for this key and field; None if it is damaged."""
    content = kept[_SEAL:]
    return content if kept[:_SEAL] == _seal(digest(content), key, field) else None


def _seal(checksum: str, key: str, field: str) -> bytes:
    return blake2b(json.dumps([checksum, key, field]).encode(), digest_size=_SEAL).digest()


def manifest_json(manifest: dict[str, str]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()


def parse_manifest(content: bytes) -> dict[str, str] | None:
    """The segments of a version, name to digest; None if this is not a manifest."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict) and all(isinstance(name, str) for name in found.values()):
        return found
    return None


COMMIT = """
local lacking = 0
for i = 3, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then lacking = lacking + 1 end
end
if lacking == 0 then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
return lacking
"""
"""Add a manifest if all its segments are stored; returns how many are missing."""

KEEP_NEWEST = """
local known = tonumber(redis.call('HGET', KEYS[1], 'number') or '-1')
if known and known >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'number', ARGV[1], 'text', ARGV[2])
return 1
"""
"""Replace the ledger by a newer one: a write that was delayed must not replace what was written after it."""

UNLINK_IF = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
"""
"""Delete keys only if the mark is the given one, or missing if that is empty: a request that was delayed, and arrives after the
node was cleared and marked anew, must not delete what was written since."""

SWEEP = """
local keep, named, newest, sound = {}, {}, math.huge, true
for i = 2, #ARGV do
  local attempt = tonumber(string.match(ARGV[i], '%d+$'))
  if i == 2 or attempt > newest then newest = attempt end
  keep[ARGV[i]] = true
end
local manifests = redis.call('HGETALL', KEYS[1])
for i = 1, #manifests, 2 do
  local attempt = tonumber(string.match(manifests[i], '^-?%d+:(%d+)$'))
  if keep[manifests[i]] or (attempt and attempt > newest) then
    local parsed, manifest = pcall(cjson.decode, string.sub(manifests[i + 1], 17))
    if parsed and type(manifest) == 'table' then
      for _, digest in pairs(manifest) do named[digest] = true end
    else
      sound = false
    end
  else
    redis.call('HDEL', KEYS[1], manifests[i])
  end
end
if sound then
  for _, digest in ipairs(redis.call('HKEYS', KEYS[2])) do
    if not named[digest] then redis.call('HDEL', KEYS[2], digest) end
  end
end
for _, version in ipairs(redis.call('HKEYS', KEYS[3])) do
  local batch, attempt = string.match(version, '^(-?%d+):(%d+)$')
  local later = attempt and tonumber(attempt) > newest
  if not batch or (tonumber(batch) < tonumber(ARGV[1]) and not later) then redis.call('HDEL', KEYS[3], version) end
end
return 1
"""
"""Delete what is not in `keep`. If a manifest that is kept cannot be read, all segments stay, because its segments are
unknown."""
