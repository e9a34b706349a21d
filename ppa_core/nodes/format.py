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


def lease_key(run: str) -> str:
    """A string, with an expiry: the driver that runs the run. Not one of the run's own keys, which are deleted when it
    starts."""
    return f"ppa:lease:{run}"


def epoch_key(run: str) -> str:
    """A number that grows with every driver of the run: requests of an older driver are refused."""
    return f"ppa:epoch:{run}"


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

_FENCE = """
if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then return -1 end
"""
"""The first key is that of the epoch, the first argument the epoch of the driver that asks: an old driver, woken from a hang,
must not delete what its successor needs."""

KEEP_NEWEST = f"""{_FENCE}
local known = tonumber(redis.call('HGET', KEYS[2], 'number') or '-1')
if known and known >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[2], 'number', ARGV[2], 'text', ARGV[3])
return 1
"""
"""Replace the ledger by a newer one: a write that was delayed must not replace what was written after it."""

UNLINK_IF = f"""{_FENCE}
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return 0 end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
"""
"""Delete keys only if the mark is the given one, or missing if that is empty: a request that was delayed, and arrives after the
node was cleared and marked anew, must not delete what was written since."""

SET_MARK = f"""{_FENCE}
if ARGV[2] == '' then redis.call('UNLINK', KEYS[2]) return 1 end
redis.call('SET', KEYS[2], ARGV[2])
if ARGV[1] ~= '0' then redis.call('SET', KEYS[1], ARGV[1]) end
return 1
"""
"""Set the mark, and the epoch, which a node that was restarted has forgotten; with an empty one, delete the mark."""

RENEW = """
local by, newest = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if tonumber(ARGV[3]) > 0 and newest == ARGV[2] and (not by or by == ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  by = ARGV[1]
end
return {by, by and redis.call('PTTL', KEYS[1]) or 0, tonumber(newest or '0')}
"""
"""Renew a lease in its own epoch, for this many milliseconds; returns the holder, the milliseconds left and the epoch."""

GRAB = """
local by, newest = redis.call('GET', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0')
local epoch = tonumber(ARGV[3])
local ours = by and ARGV[2] ~= '' and string.sub(by, 1, #ARGV[2]) == ARGV[2]
if by and by ~= ARGV[1] and not ours then return 0 end
if epoch > 0 and (newest > epoch or (newest == epoch and by ~= ARGV[1])) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
if epoch > 0 then redis.call('SET', KEYS[2], ARGV[3]) end
return 1
"""
"""Take the lease in a new epoch (0: in none) unless another driver has it, other than one of the same owner."""

RELEASE = """
local by = redis.call('GET', KEYS[1])
if not by or string.sub(by, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1])
if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('UNLINK', KEYS[2]) end
return 1
"""
"""Give back the lease; the epoch stays as long as the run can be resumed, that is, has a ledger."""

SWEEP = (
    _FENCE
    + """
local keep, named, newest, sound = {}, {}, math.huge, true
for i = 3, #ARGV do
  local attempt = tonumber(string.match(ARGV[i], '%d+$'))
  if i == 3 or attempt > newest then newest = attempt end
  keep[ARGV[i]] = true
end
local manifests = redis.call('HGETALL', KEYS[2])
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
    redis.call('HDEL', KEYS[2], manifests[i])
  end
end
if sound then
  for _, digest in ipairs(redis.call('HKEYS', KEYS[3])) do
    if not named[digest] then redis.call('HDEL', KEYS[3], digest) end
  end
end
for _, version in ipairs(redis.call('HKEYS', KEYS[4])) do
  local batch, attempt = string.match(version, '^(-?%d+):(%d+)$')
  local later = attempt and tonumber(attempt) > newest
  if not batch or (tonumber(batch) < tonumber(ARGV[2]) and not later) then redis.call('HDEL', KEYS[4], version) end
end
return 1
"""
)
"""Delete what is not in `keep`. If a manifest that is kept cannot be read, all segments stay, because its segments are
unknown."""
