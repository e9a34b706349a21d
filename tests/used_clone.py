"""A `.ppa` as `make run` leaves it, and what is in it: to see that tests neither read nor change what is the user's.

`python -m tests.used_clone make FOLDER` makes FOLDER/.ppa, which must not be there yet, with a real monitor that has a recorded
run. `python -m tests.used_clone state FOLDER` prints a line for each file there: its mode, when it was changed, its digest.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from monitoring import access
from monitoring.recorded import Scenario, record
from monitoring.server import start
from monitoring.signing import Signer
from ppa_core.settings import ProgramSettings


def make(folder: Path) -> None:
    """As if an operator had used the clone: a password, a key, a monitor with its history."""
    home = folder / ".ppa"
    home.mkdir(mode=0o700)
    access.write_hash(access.hash_password(access.make_password()), home / "operator.hash")
    Signer.find(home / "monitor", ProgramSettings())
    with start(home / "monitor") as server:
        record(server.address, Scenario(batches=30, fail=10))


def state(folder: Path) -> list[str]:
    """All that is in FOLDER/.ppa."""
    lines = []
    for path in sorted((folder / ".ppa").rglob("*")):
        known = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        lines.append(f"{known.st_mode:o} {known.st_mtime_ns} {digest} {path.relative_to(folder)}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.used_clone", description="A .ppa as `make run` leaves it.")
    parser.add_argument("what", choices=["make", "state"], help="make FOLDER/.ppa, or print what is in it")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the clone")
    arguments = parser.parse_args()
    if arguments.what == "state":
        print("\n".join(state(arguments.folder)))
        return 0
    try:
        make(arguments.folder)
    except FileExistsError:
        print(f"error: {arguments.folder / '.ppa'}: it is there already, and stays as it is", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
