"""What the monitor keeps: a reader gives what is sound of it, raises only what it says it does, and loses no sound event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from redis import Redis

from monitoring import keys
from monitoring.connection import Address
from monitoring.reader import MonitorReader
from monitoring.recorded import Scenario, record
from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.embedded import launch
from tests.fuzz.mutating import mutant
from tests.fuzz.target import must
from tests.support.stored import EVERYTHING

_A_ROUND = 25

Undo = Callable[[], object]


class Values:
    def __init__(self, url: str) -> None:
        self.client: Any = Redis.from_url(url, protocol=2)
        self.reader = MonitorReader(Address(url))
        self.pipeline = record(Address(url), Scenario())
        self.events = [event.id for event in self.reader.events(self.pipeline)]
        self.kept = sorted(self.client.scan_iter("ppa:monitor:*", count=1000))
        self.incidents = [incident.id for incident in self.reader.incidents(self.pipeline)]
        assert self.events
        assert self.incidents
        assert not self.reader.bad

    def close(self) -> None:
        self.reader.close()
        self.client.close()

    def round(self, random: Random) -> int:
        sound, undo = set(self.events), []
        for _ in range(_A_ROUND):
            key = random.choice(self.kept)
            undo.append(self.mutate(key, random, sound))
        try:
            self.read_all(sound, random)
        finally:
            for one in reversed(undo):
                one()
        return _A_ROUND

    def mutate(self, key: bytes, random: Random, sound: set[str]) -> Undo:
        """Mutate one value of a key, or put something of another type there; how to undo it."""
        kept = self.client.dump(key)
        events = key == keys.series(self.pipeline, keys.EVENTS).encode()
        if random.random() < 0.03:
            self.client.delete(key)
            self.client.set(key, mutant(b"of another type", random))
            if events:
                sound.clear()
        else:
            self.mutate_value(key, self.client.type(key), random, sound if events else set())

        def undo() -> None:
            self.client.restore(key, 0, kept, replace=True)

        return undo

    def mutate_value(self, key: bytes, kind: bytes, random: Random, sound: set[str]) -> None:
        match kind:
            case b"string":
                self.client.set(key, mutant(self.client.get(key), random))
            case b"hash":
                name, value = random.choice(sorted(self.client.hgetall(key).items()))
                self.client.hset(key, name, mutant(value, random))
            case b"zset":
                member, score = random.choice(self.client.zrange(key, 0, -1, withscores=True))
                self.client.zadd(key, {mutant(member, random): random.choice((score, 0, 1e300))})
            case b"stream":
                entries = self.client.xrange(key)
                at = random.randrange(len(entries))
                id_, fields = entries[at]
                changed = mutant(fields.get(b"r", b""), random)
                name = b"r" if random.random() < 0.8 else mutant(b"r", random)
                with self.client.pipeline(transaction=False) as pipe:
                    pipe.delete(key)
                    for other, value in [*entries[:at], (id_, {name: changed}), *entries[at + 1 :]]:
                        pipe.xadd(key, value, id=other)
                    pipe.execute()
                sound.discard(id_.decode())

    def read_all(self, sound: set[str], random: Random) -> None:
        """Everything that pages and commands read."""
        reader, one = self.reader, self.pipeline
        since = random.choice((0.0, -1.0, 1e18, 1_000.0))
        calls: list[Callable[[], object]] = [
            reader.pipelines, reader.find, lambda: reader.info(one), lambda: reader.state(one), lambda: reader.batches(one),
            lambda: reader.batches(one, since), lambda: reader.of_series(one, since), lambda: reader.minutes(one),
            lambda: reader.progress(one), lambda: reader.plans(one), lambda: reader.task_figures(one),
            lambda: reader.incidents(one), lambda: reader.incident(one, random.choice(self.incidents)),
            lambda: reader.audit(one),
        ]  # fmt: skip
        for call in calls:
            try:
                call()
            except (Unavailable, BadInput) as error:
                must(str(error), "an error without a word")
        try:
            found = {event.id for event in reader.events(one)}
        except Unavailable:
            return  # the schema's own value was mutated
        assert sound <= found, f"{len(sound - found)} sound events are lost"


@contextmanager
def monitor_values(folder: Path) -> Iterator[Values]:
    with launch(1, 1, 1, 128, EVERYTHING) as nodes:
        target = Values(nodes.cluster["n1"].url)
        yield target
        target.close()
