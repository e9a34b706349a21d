"""Who may act on the pages: whoever knows the operator's password. Only its salted hash is kept, in the environment or a file.

A hash is one line, `scrypt:<log2 n>:<r>:<p>:<salt>:<key>` with salt and key in hex. `Attempts` is shared by all sessions of a
server: it slows guessing down, and lets nobody keep the operator out.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from ppa_core.errors import BadInput, PpaError
from ppa_core.home import FOLDER
from ppa_core.safety.owned import open_own
from ppa_core.settings import PASSWORD_HASH_VARIABLE, ProgramSettings, current

HASH_VARIABLE = PASSWORD_HASH_VARIABLE
HASH_PATH = FOLDER / "operator.hash"
MAX_PASSWORD = 1_000
_COST, _BLOCK, _LANES = 14, 8, 1
_MEMORY = 256 << 20
_MOST_BYTES = 1_000


class TooMany(PpaError):
    """Too many try, or one too often: the next password is looked at in `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many attempts; try again in {math.ceil(seconds)} s")
        self.seconds = seconds


def make_password() -> str:
    """A new password that nobody guesses: 96 random bits in 16 characters that a shell leaves alone."""
    return secrets.token_urlsafe(12)


def hash_password(password: str) -> str:
    """What to keep of a password."""
    _check(password)
    salt = secrets.token_bytes(16)
    return f"scrypt:{_COST}:{_BLOCK}:{_LANES}:{salt.hex()}:{_derived(password, salt, _COST, _BLOCK, _LANES).hex()}"


def verify(password: str, known: str) -> bool:
    """Whether it is the password of that hash; BadInput if the hash is none."""
    salt, key, cost, block, lanes = _parsed(known)
    if not 1 <= len(password) <= MAX_PASSWORD:
        return False
    return hmac.compare_digest(_derived(password, salt, cost, block, lanes), key)


def write_hash(known: str, path: Path = HASH_PATH) -> None:
    """Keep a hash in a file that only its owner can read, in place of the one before."""
    _parsed(known)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(known + "\n")
        draft.replace(path)
    except OSError as error:
        raise BadInput(str(path), f"the password's hash cannot be written: {error.strerror}") from error


def find_hash(path: Path = HASH_PATH, settings: ProgramSettings | None = None) -> str | None:
    """The hash of the settings, else that of the file; None where no password is set. BadInput if it is none."""
    given = (settings or current()).operator_password_hash
    if given:
        _parsed(given.strip(), HASH_VARIABLE)
        return given.strip()
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise BadInput(str(path), "others can read or change the password's hash; make it private with chmod 600")
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(str(path), f"the password's hash cannot be read: {error.strerror}") from error
    text = content.decode("ascii", "replace").strip()
    _parsed(text, str(path))
    return text


def holds(known: str | None) -> bool:
    """Whether a login with that hash still holds: the password is the same."""
    try:
        return known is not None and hmac.compare_digest(known, find_hash() or "")
    except BadInput:
        return False


class Attempts:
    """Guards a password against guessing without ever keeping its owner out. May be shared by threads.

    Whoever tries waits for a turn. Turns of one address come one after the other, at most ten a second; after FREE wrong
    passwords of a known address, two a second. A session that was wrong more than FREE times also waits 1, 2, 4 … up to LONGEST
    seconds, whatever others do; one that was right begins anew. Nobody waits longer than LONGEST for a turn: where the line is
    longer, it is TooMany, but for one in LOT of those who come then, by chance: who fills the line cannot close it. Addresses
    that are not known share their turns: those of this machine (None), and those that only a header tells of ("").
    """

    FREE, LONGEST, LOT = 5, 30.0, 10
    QUICK, SLOW = 0.1, 0.5
    _KEPT, _FORGET = 10_000, 900.0

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep) -> None:
        self._clock, self._sleep = clock, sleep
        self._wrong: dict[str, tuple[int, float]] = {}
        """How often a session or an address was wrong, and when last."""
        self._turns: dict[str, float] = {}
        self._lock, self._looking = Lock(), Lock()

    def verify(self, password: str, known: str, session: str = "", address: str | None = None) -> bool:
        """Whether the password is right; TooMany if it was not looked at."""
        who, where = f"session {session}", f"address {_network(address)}"
        with self._lock:
            now = self._clock()
            self._forget(now)
            times, last = self._wrong.get(who, (0, now))
            if times >= self.FREE and (left := last + min(2.0 ** (times - self.FREE), self.LONGEST) - now) > 0:
                raise TooMany(left)
            turn = max(now, self._turns.pop(where, now))
            self._turns[where] = turn
            if turn - now > self.LONGEST:
                if secrets.randbelow(self.LOT):
                    raise TooMany(turn - now - self.LONGEST)
                turn = now
            else:
                slow = bool(address) and self._wrong.get(where, (0, now))[0] >= self.FREE
                self._turns[where] = turn + (self.SLOW if slow else self.QUICK)
            for key in (who, where):  # before it is looked at, so that attempts at the same moment count
                self._wrong[key] = self._wrong.pop(key, (0, now))[0] + 1, turn
        self._sleep(turn - now)
        with self._looking:  # one at a time: looking takes memory and a processor
            right = verify(password, known)
        if right:
            with self._lock:
                self._wrong.pop(who, None)
        return right

    def _forget(self, now: float) -> None:
        """The oldest entries go: those of whoever tried last long ago, and whatever is too much."""
        for kept, at in ((self._wrong, lambda key: self._wrong[key][1]), (self._turns, self._turns.__getitem__)):
            while kept and (now - at(first := next(iter(kept))) > self._FORGET or len(kept) > self._KEPT):
                del kept[first]


def _network(address: str | None) -> str:
    """An address, or what stands for all that one may have: of version 6, 64 bits."""
    try:
        return str(ipaddress.ip_network((address or "", 64), strict=False)) if address and ":" in address else str(address)
    except ValueError:
        return str(address)


def _check(password: str) -> None:
    if not 8 <= len(password) <= MAX_PASSWORD:
        raise BadInput("password", f"it has 8 to {MAX_PASSWORD} characters")


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
        raise BadInput(place, "not the hash of a password; monitoring.access.hash_password makes one")
    return *found, *numbers
