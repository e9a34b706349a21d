"""The operator's password, which is needed to send commands from the pages. Only its salted hash is stored.

The hash is in the environment or a file, in one line: `scrypt:<log2 n>:<r>:<p>:<salt>:<key>`, salt and key in hex. All sessions
of a server share one `Attempts`: it slows down guessing, without letting an attacker lock out the operator.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from ppa_core.errors import BadInput, PpaError
from ppa_core.home import FOLDER
from ppa_core.safety.owned import read_private, written_whole
from ppa_core.settings import PASSWORD_HASH_VARIABLE, ProgramSettings, current

HASH_VARIABLE = PASSWORD_HASH_VARIABLE
HASH_PATH = FOLDER / "operator.hash"
MAX_PASSWORD = 1_000
_COST, _BLOCK, _LANES = 14, 8, 1
_MEMORY = 256 << 20
_MAX_BYTES = 1_000


class TooManyAttempts(PpaError):
    """Too many attempts; the next password is checked after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many attempts; try again in {math.ceil(seconds)} s")
        self.seconds = seconds


def make_password() -> str:
    """A new password: 96 random bits in 16 characters without a special meaning in shells."""
    return secrets.token_urlsafe(12)


def hash_password(password: str) -> str:
    """The salted hash of a password."""
    _check(password)
    salt = secrets.token_bytes(16)
    return f"scrypt:{_COST}:{_BLOCK}:{_LANES}:{salt.hex()}:{_derived(password, salt, _COST, _BLOCK, _LANES).hex()}"


def verify(password: str, known: str) -> bool:
    """Whether it is the password of that hash; BadInput if the hash is not valid."""
    salt, key, cost, block, lanes = _parsed(known)
    if not 1 <= len(password) <= MAX_PASSWORD:
        return False
    return hmac.compare_digest(_derived(password, salt, cost, block, lanes), key)


def write_hash(known: str, path: Path = HASH_PATH) -> None:
    """Write the hash to a file that only its owner can read; replaces the previous one."""
    _parsed(known)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with written_whole(path, mode=0o600) as file:
            file.write(f"{known}\n".encode())
    except OSError as error:
        raise BadInput(str(path), f"the password's hash cannot be written: {error.strerror}") from error


def find_hash(path: Path = HASH_PATH, settings: ProgramSettings | None = None) -> str | None:
    """The hash of the settings, else of the file; None if no password is set. BadInput if the hash is not valid."""
    given = (settings or current()).operator_password_hash
    if given:
        _parsed(given.strip(), HASH_VARIABLE)
        return given.strip()
    try:
        content = read_private(path, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(str(path), f"the password's hash cannot be read: {error.strerror}") from error
    text = content.decode("ascii", "replace").strip()
    _parsed(text, str(path))
    return text


def holds(known: str | None) -> bool:
    """Whether a login with that hash is still valid: the password has not been changed."""
    try:
        return known is not None and hmac.compare_digest(known, find_hash() or "")
    except BadInput:
        return False


class Attempts:
    """Limits the rate of login attempts without locking out the operator. Threads may share it.

    Attempts from one address are checked one after the other, at most ten per second; after FREE wrong passwords from a known
    address, two per second. After FREE wrong passwords a session must also wait 1, 2, 4 … up to LONGEST seconds before the next
    attempt; a right password resets that. An attempt that would wait in the queue for longer than LONGEST is refused with
    TooManyAttempts, except for one in LOT, chosen at random, which is checked at once: a full queue locks nobody out. All local
    sessions (address None) share one queue, and so do all whose address is known only from a header ("").
    """

    FREE, LONGEST, LOT = 5, 30.0, 10
    QUICK, SLOW = 0.1, 0.5
    _KEPT, _FORGET = 10_000, 900.0

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep) -> None:
        self._clock, self._sleep = clock, sleep
        self._wrong: dict[str, tuple[int, float]] = {}
        """Wrong passwords of each session and address, and the time of the last."""
        self._turns: dict[str, float] = {}
        self._lock, self._checking = Lock(), Lock()

    def verify(self, password: str, known: str, session: str = "", address: str | None = None) -> bool:
        """Whether the password is right; TooManyAttempts if it was not checked."""
        who, where = f"session {session}", f"address {_network(address)}"
        with self._lock:
            now = self._clock()
            self._forget(now)
            times, last = self._wrong.get(who, (0, now))
            if times >= self.FREE and (left := last + min(2.0 ** (times - self.FREE), self.LONGEST) - now) > 0:
                raise TooManyAttempts(left)
            turn = max(now, self._turns.pop(where, now))
            self._turns[where] = turn
            if turn - now > self.LONGEST:
                if secrets.randbelow(self.LOT):
                    raise TooManyAttempts(turn - now - self.LONGEST)
                turn = now
            else:
                slow = bool(address) and self._wrong.get(where, (0, now))[0] >= self.FREE
                self._turns[where] = turn + (self.SLOW if slow else self.QUICK)
            for key in (who, where):  # before the check, so that simultaneous attempts count
                self._wrong[key] = self._wrong.pop(key, (0, now))[0] + 1, turn
        self._sleep(turn - now)
        with self._checking:  # one at a time: a check needs memory and CPU
            right = verify(password, known)
        if right:
            with self._lock:
                self._wrong.pop(who, None)
        return right

    def _forget(self, now: float) -> None:
        """Remove the entries of attempts long ago, and the oldest ones if there are too many."""
        for kept, at in ((self._wrong, lambda key: self._wrong[key][1]), (self._turns, self._turns.__getitem__)):
            while kept and (now - at(first := next(iter(kept))) > self._FORGET or len(kept) > self._KEPT):
                del kept[first]


def _network(address: str | None) -> str:
    """The address; of IPv6 the first 64 bits, because one user can have all the others."""
    try:
        return str(ipaddress.ip_network((address or "", 64), strict=False)) if address and ":" in address else str(address)
    except ValueError:
        return str(address)


def _check(password: str) -> None:
    if not 8 <= len(password) <= MAX_PASSWORD:
        raise BadInput("password", f"must have 8 to {MAX_PASSWORD} characters")


def _derived(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    content = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(content, salt=salt, n=1 << cost, r=block, p=lanes, maxmem=_MEMORY, dklen=32)


def _parsed(known: str, place: str = "password hash") -> tuple[bytes, bytes, int, int, int]:
    try:
        kind, cost, block, lanes, salt, key = known.split(":")
        numbers = int(cost), int(block), int(lanes)
        found = bytes.fromhex(salt), bytes.fromhex(key)
    except ValueError:
        kind, numbers, found = "", (0, 0, 0), (b"", b"")
    usable = 10 <= numbers[0] <= 17 and 1 <= numbers[1] <= 8 and 1 <= numbers[2] <= 4
    if kind != "scrypt" or not usable or len(found[0]) < 8 or len(found[1]) != 32:
        raise BadInput(place, "not a password hash; monitoring.access.hash_password makes one")
    return *found, *numbers
