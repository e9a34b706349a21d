"""Signed commands: no mutant is taken for a command, and the genuine one among them is taken, once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from redis import Redis

from monitoring import keys
from monitoring.channel import Channel, CommandSender
from monitoring.commands import (
    ApplyPlan,
    ChoosePlanner,
    Command,
    Drain,
    Fail,
    Kill,
    Pause,
    Replan,
    Restore,
    Resume,
    SetBudget,
    Stop,
    Undrain,
    document_of,
    read,
)
from monitoring.connection import Address
from monitoring.records import RunKey
from monitoring.signing import CommandRefused, Signer
from ppa_core.errors import RequestError
from ppa_core.nodes.embedded import launch
from tests.fuzz.mutating import mutant, mutant_document
from tests.fuzz.target import must
from tests.support.stored import EVERYTHING

COMMANDS: tuple[Command, ...] = (
    SetBudget(3), ChoosePlanner("greedy"), ApplyPlan(2, "exact", ("O1.1", "O2.1")), Replan(), Drain("rack:r1"),
    Undrain("node:n1"), Fail("rack:r1"), Kill("node:n1"), Restore("node:n1"), Pause(), Resume(), Stop(),
)  # fmt: skip
_FORGED, _SENT = 20, 10
_POLLS = 20


class Commands:
    def __init__(self, url: str) -> None:
        self.address, self.signer, self.thief = Address(url), Signer(b"k" * 32), Signer(b"t" * 32)
        self.client: Any = Redis.from_url(url, protocol=2)
        self.number = count()

    def round(self, random: Random) -> int:
        pipeline = RunKey("fuzz", f"run{next(self.number)}")
        operator, channel = CommandSender(self.address, self.signer), Channel(self.address, pipeline, self.signer)
        try:
            assert channel.poll() == []
            return self.attack(pipeline, operator, channel, random)
        finally:
            operator.close()
            channel.close()
            for key in self.client.scan_iter(f"{keys.key(pipeline)}*", count=1000):
                self.client.unlink(key)

    def attack(self, pipeline: RunKey, operator: CommandSender, channel: Channel, random: Random) -> int:
        command = random.choice(COMMANDS)
        sent = operator.send(pipeline, command, "me")
        ((_, fields),) = self.client.xrange(keys.commands(pipeline))
        signed = fields[b"token"]
        assert self.signer.verify(signed, pipeline, time.time()).command == command
        forged = [other for other in self.forgeries(signed, random) if other != signed]
        for other in forged:
            self.check_refused(other, pipeline)
        self.check_documents(command, random)
        for number, other in enumerate(forged[:_SENT]):
            self.client.xadd(keys.commands(pipeline), {b"token" if number % 4 else mutant(b"token", random): other})
        taken = [token.id for _ in range(_POLLS) for token in channel.poll()]
        assert taken == [sent], f"sent {sent}, taken {taken}; {channel.trouble}"
        return len(forged)

    def forgeries(self, signed: bytes, random: Random) -> Iterator[bytes]:
        body, _, signature = signed.rpartition(b".")
        for _ in range(_FORGED):
            match random.randrange(5):
                case 0:
                    yield mutant(body, random) + b"." + signature
                case 1:
                    yield body + b"." + mutant(signature, random)
                case 2:
                    yield json.dumps(mutant_document(json.loads(body), random)).encode() + b"." + signature
                case 3:
                    yield self.thief.sign(Pause(), RunKey("fuzz", f"run{random.randrange(9)}"), "thief")[1]
                case _:
                    yield mutant(signed, random)

    def check_refused(self, signed: bytes, pipeline: RunKey) -> None:
        try:
            token = self.signer.verify(signed, pipeline, time.time())
        except CommandRefused as error:
            must(error.token is None, "nothing vouches for it")
            return
        raise AssertionError(f"taken: {token}")

    def check_documents(self, command: Command, random: Random) -> None:
        """A document that is no command is refused as such, whoever signed it."""
        for _ in range(_FORGED):
            try:
                found = read(mutant_document(document_of(command), random))
            except RequestError:
                continue
            assert read(document_of(found)) == found


@contextmanager
def signed_commands(folder: Path) -> Iterator[Commands]:
    with launch(1, 1, 1, 128, EVERYTHING) as nodes:
        target = Commands(nodes.cluster["n1"].url)
        yield target
        target.client.close()
