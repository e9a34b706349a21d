"""The machine's storm: `python -m tests.engine.storm --minutes 10`, or `--seed N` for one of them again.

A seed makes a topology, nodes, options and a list of steps: batches begun and ended, nodes lost together, back and drained,
copies damaged, jobs failed, plans changed, pauses, drivers that die at any moment. After every step all that must always hold
is checked; at the end, that every batch was published, corrected where it was tentative, and equal to a run without failures.
A fifth of the time goes to machine, workers and real nodes in which bits flip (`--only stores`).

Each step draws from a random number generator of its own, so steps can be left out: of a failure the fewest steps that still
show it are searched, and printed with the command that runs exactly these.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from ppa_core.engine.predictions import lose
from ppa_core.topology import Build, Topology
from tests.engine.world import World
from tests.security.test_state_storm import flip_bits

AGAIN = "python -m tests.engine.storm"
LENGTHS = (15, 40, 120)
SHARES = {"machine": 0.8, "stores": 0.2}
"""Of the time."""
SHRINK_SECONDS = 20.0
_TELL_EVERY = 5.0
_MOST_FAILURES = 5


def random_topology(random: Random) -> tuple[Topology, dict[str, int | None]]:
    """Two to six operators, at times with several sinks, several paths and sources outside; how far back each looks."""
    build, sizes = Build("storm"), list[int]()
    for i in range(random.randint(2, 6)):
        size = random.randint(1, 4)
        feeding = random.sample(range(i), min(i, random.choice((0, 1, 1, 1, 2, 3)))) if i > 1 else range(i)
        inputs = {}
        for up in feeding:
            narrow = "one-to-one" if sizes[up] == size else "merge" if sizes[up] > size else "split"
            inputs[f"O{up}"] = random.choice(("full", narrow))
        if inputs:
            build = build.operator(f"O{i}", size, inputs, join=random.random() < 0.5)
        else:
            build = build.source(f"O{i}", size, rate=1, external=random.random() < 0.5)
        sizes.append(size)
    return build.done(), {f"O{i}": random.choice((None, 0, 0, 1, 2, 4)) for i in range(len(sizes))}


class Storm:
    """The storm of a seed. `run` raises what went wrong; `story` has what happened until then."""

    def __init__(self, seed: int) -> None:
        self.seed, self.story = seed, list[str]()
        random = Random(f"storm {seed}")
        topology, lookback = random_topology(random)
        primaries = random.randint(1, 5)
        self.world = World(
            topology, primaries, random.randint(primaries == 1, 4), frozenset(), self.options(random), lookback,
            racks=random.randint(1, 3), early_writes=random.random() < 0.5, late_sweeps=random.random() < 0.5,
        )  # fmt: skip
        self.tasks, self.nodes = self.world.graph.tasks, [node.name for node in self.world.nodes]
        self.world.replan(self.some(random, self.tasks))
        self.steps = range(random.choice(LENGTHS))
        kinds: list[Callable[[Random], str]] = [
            self.lose, self.lose, self.lose_and_return, self.restart_nodes, self.back, self.damage, self.drain, self.fail,
            self.replan, self.pause, self.restart, self.die_after_publishing, self.report_again,
            self.late, self.suspect, self.suspect, self.suspect_wrongly, self.flap, self.answer, self.die,
        ]  # fmt: skip
        self.kinds = [kind for kind in kinds if random.random() < 0.7]
        """Not all that can happen happens in every storm: what is rare together with everything else is frequent in some."""
        self.kinds += [self.batches] * random.randint(1, 4) + [self.begin, self.end, self.replay] * random.randint(1, 3)

    def options(self, random: Random) -> dict[str, int]:
        return {
            "checkpoint_every": random.choice((0, 1, 2, 3, 7, 15)),
            "sync_every": random.choice((1, 1, 2, 3, 5)),
            "short_replay": random.randint(1, 3),
        }

    def run(self, steps: Sequence[int] | None = None) -> None:
        self.story.append(f"seed {self.seed}: {len(self.tasks)} tasks, nodes {' '.join(self.nodes)}, {self.world.options}")
        for step in self.steps if steps is None else steps:
            random = Random(f"storm {self.seed} step {step}")
            kind = random.choice(self.kinds)
            self.story.append(f"{step}: {kind.__name__}")
            before = self.world.machine.attempt
            self.story[-1] = f"{step}: {kind(random)}"
            assert self.world.machine.attempt >= before, "a number of an attempt was given twice"
            self.check()
        self.story.append("then all is well")
        self.settle(Random(f"storm {self.seed} end"))

    def check(self) -> None:
        """What always holds, beside what the world checks of places and copies."""
        world, machine = self.world, self.world.machine
        world.check()
        assert machine.tentative == {batch for batch, history in world.emitted.items() if history[-1].status == "tentative"}
        ahead = {batch for batch in world.emitted if batch > machine.head}
        assert sorted(world.emitted) == list(range(machine.head + 1)) + sorted(ahead)
        assert ahead <= machine.tentative
        assert machine.lost == world.down
        assert not machine.tentative - ahead or machine.missing
        assert machine.placement.replicas.keys() <= machine.placement.plan
        if len(set(self.nodes) - machine.lost - machine.drained) > 1:
            assert machine.placement.replicas.keys() == machine.placement.plan

    def settle(self, random: Random) -> None:
        world = self.world
        world.resume()
        self.end(random)
        if random.random() < 0.5:
            for node in sorted(world.down):
                (world.answer if node in world.machine.suspended and random.random() < 0.5 else world.back)(node)
        world.settle()
        self.check()
        for batch, history in world.emitted.items():
            assert world.results[batch, history[-1].attempt] == world.truth.result(batch), f"batch {batch} is wrong"

    # ------------------------------------------------------------------------------------------------------------- steps

    def some(self, random: Random, all_: Sequence[str]) -> frozenset[str]:
        """None, a few, or most."""
        share = random.choice((0, 0.2, 0.5, 0.8))
        return frozenset(one for one in all_ if random.random() < share)

    def up(self) -> list[str]:
        return [node for node in self.nodes if node not in self.world.down]

    def chosen(self, random: Random) -> list[str]:
        """Nodes to fail together: one, some, a rack, a role; one at least is left."""
        up = self.up()
        role = random.choice(("primary", "standby"))
        rack = random.choice(self.world.nodes).rack
        groups = [
            random.sample(up, 1),
            random.sample(up, random.randint(1, len(up))),
            [node.name for node in self.world.nodes if node.role == role and node.name in up],
            [node.name for node in self.world.nodes if node.rack == rack and node.name in up],
            [node for node in up if node in self.world.machine.placement.primaries.values()],
        ]
        group = random.choice(groups)
        return group if len(group) < len(up) else group[1:]

    def progress(self, random: Random) -> frozenset[str]:
        """How far the jobs under way get before what comes."""
        replayed = random.choice((0, 1, 2, 9))
        self.world.progress(frozenset(), replayed)
        return self.some(random, self.tasks)

    def batches(self, random: Random) -> str:
        times = random.choice((1, 2, 3, 8))
        for _ in range(times):
            self.end(random)
            if not self.world.paused:
                self.world.batch()
                self.check()
        return f"up to {times} batches, to batch {self.world.machine.head}"

    def begin(self, random: Random) -> str:
        if not self.world.pending and not self.world.paused:
            self.world.begin(patient=random.random() < 0.5)
        return f"batch {self.world.machine.head + 1} is in flight: {self.world.pending is not None}"

    def end(self, random: Random) -> str:
        while self.world.pending:
            self.world.finish()
        return f"batch {self.world.machine.head} has ended"

    def replay(self, random: Random) -> str:
        self.world.finish_replay()
        return f"a replay ends; missing {sorted(self.world.machine.missing)}"

    def lose(self, random: Random) -> str:
        nodes, machine = self.chosen(random), self.world.machine
        foreseen, before = lose(machine.standing(), nodes), machine.missing
        self.world.lose(*nodes, done=self.progress(random))
        assert machine.missing - before == set(foreseen.missing), "another loss than predicted"
        return f"lose {nodes}; missing {sorted(machine.missing)}"

    def lose_and_return(self, random: Random) -> str:
        nodes = self.chosen(random)
        self.world.lose(*nodes, done=self.progress(random))
        for node in nodes:
            self.world.back(node)
        return f"lose {nodes}, which are back at once"

    def restart_nodes(self, random: Random) -> str:
        """Nodes are restarted one after the other, as for an upgrade."""
        nodes = random.sample(self.up(), random.randint(2, len(self.up()))) if len(self.up()) > 1 else []
        for node in nodes:
            self.world.lose(node, done=self.progress(random))
            self.world.back(node)
        return f"restart {nodes} one after the other"

    def late(self, random: Random) -> str:
        """Deadlines pass before batches are done, or begun."""
        ahead = random.choice((0, 0, 1, 2))
        for one in range(ahead + 1):
            self.world.late(one)
        return f"no output by the deadlines of {ahead + 1} batches"

    def suspect(self, random: Random) -> str:
        """Nodes fall silent: what follows at once is what follows if they are dead."""
        nodes, machine = self.chosen(random), self.world.machine
        foreseen, before = lose(machine.standing(), nodes), machine.missing
        self.world.suspect(*nodes, done=self.progress(random))
        assert machine.missing - before == set(foreseen.missing), "another loss than predicted"
        return f"suspect {nodes}; missing {sorted(machine.missing)}"

    def suspect_wrongly(self, random: Random) -> str:
        """Nodes answer again at once: what is missing then was missing before, unless a batch had begun without it."""
        nodes, machine = self.chosen(random), self.world.machine
        before, running = machine.missing, machine.running is not None
        self.world.suspect(*nodes, done=self.progress(random))
        for node in nodes:
            self.world.answer(node)
        assert running or before or not machine.missing, "a false suspicion between batches costs nothing"
        return f"suspect {nodes}, which answer at once; missing {sorted(machine.missing)}"

    def flap(self, random: Random) -> str:
        """Nodes are silent, back, silent, with a batch now and then."""
        nodes = self.chosen(random)
        for _ in range(random.randint(2, 5)):
            self.world.suspect(*nodes, done=self.progress(random))
            self.end(random)
            if not self.world.paused and random.random() < 0.5:
                self.world.batch()
            for node in nodes:
                self.world.answer(node)
        return f"flapping: {nodes}"

    def answer(self, random: Random) -> str:
        nodes = sorted(self.some(random, sorted(self.world.machine.suspended)) or self.world.machine.suspended)
        for node in nodes:
            self.world.answer(node)
        return f"suspects {nodes} answer; missing {sorted(self.world.machine.missing)}"

    def die(self, random: Random) -> str:
        nodes = sorted(self.some(random, sorted(self.world.machine.suspended)))
        for node in nodes:
            self.world.die(node)
        return f"suspects {nodes} are dead"

    def back(self, random: Random) -> str:
        nodes = sorted(self.some(random, sorted(self.world.down)) or self.world.down)
        for node in nodes:
            self.world.back(node)
        return f"back {nodes}"

    def damage(self, random: Random) -> str:
        node, task = random.choice(self.up()), random.choice(self.tasks)
        self.world.damage(node, task, self.progress(random))
        return f"damage {task} in {node}"

    def drain(self, random: Random) -> str:
        nodes = self.some(random, self.up())
        self.world.drain(*nodes)
        return f"drain {sorted(nodes)}"

    def fail(self, random: Random) -> str:
        self.world.fail(self.progress(random))
        return "the job under way fails"

    def replan(self, random: Random) -> str:
        plan = self.some(random, self.tasks)
        self.world.replan(plan)
        return f"plan {sorted(plan)}"

    def pause(self, random: Random) -> str:
        if self.world.paused:
            self.world.resume()
        else:
            self.world.pause()
        return f"paused: {self.world.paused}"

    def restart(self, random: Random) -> str:
        """The driver dies at any moment, at times with nodes, and is started again, at times with other options."""
        nodes = self.chosen(random) if random.random() < 0.5 else []
        back = random.random() < 0.5
        self.world.progress(self.progress(random))
        late = self.world.pending
        if random.random() < 0.2:
            self.world.options = self.options(random)
        self.world.restart(*nodes, back=back)
        if late:
            self.world.write_late(late.order)
        return f"driver restarts with {self.world.options}; lost {nodes}, back at once: {back}"

    def die_after_publishing(self, random: Random) -> str:
        """What a batch or a replay came to is published, and the driver dies before that is in its ledger."""
        if self.world.pending and random.random() < 0.7:
            self.world.finish(save=False)
        else:
            self.world.finish_replay(save=False)
        return "driver dies after publishing, and restarts"

    def report_again(self, random: Random) -> str:
        """An attempt that was overtaken, or has ended, reports once more, and still writes."""
        old = random.randrange(self.world.machine.attempt) if self.world.machine.attempt else 0
        if old not in (order.attempt for order in self.world.machine_jobs()):
            self.world.report_again(old)
        return f"attempt {old} reports again"


# ----------------------------------------------------------------------------------------------------------- the command


def failure(seed: int, steps: Sequence[int] | None = None) -> tuple[Storm, Exception | None]:
    """A storm, and the error that it ended with."""
    storm = Storm(seed)
    try:
        storm.run(steps)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return storm, error
    return storm, None


def shrunk(seed: int, seconds: float) -> list[int]:
    """The fewest steps found in so many seconds after which the same kind of error comes."""
    storm, error = failure(seed)
    steps, size, end = list(storm.steps), len(storm.steps), time.monotonic() + seconds
    while size:
        for start in reversed(range(0, len(steps), size)):
            fewer = steps[:start] + steps[start + size :]
            if time.monotonic() < end and type(failure(seed, fewer)[1]) is type(error):
                steps = fewer
        size //= 2
    return steps


def machine_storm(seed: int, steps: Sequence[int] | None = None, shrink: float = 0) -> Counter[str]:
    """Run a storm; if it fails, print the story of as few of its steps as `shrink` seconds can find."""
    storm, error = failure(seed, steps)
    if error and shrink:
        steps = shrunk(seed, shrink)
        storm, error = failure(seed, steps)
    if error:
        print("\n".join(storm.story))
        traceback.print_exception(error, file=sys.stdout)
        if shrink and steps is not None:
            print(f"the steps above alone: {AGAIN} --seed {seed} --steps {','.join(map(str, steps))}")
        print(f"FAILED: {AGAIN} --seed {seed}", flush=True)
    return Counter(storms=1, events=storm.world.events, batches=len(storm.world.emitted), failed=error is not None)


def stores_storm(seed: int) -> Counter[str]:
    """The same for bits that flip in real nodes."""
    try:
        return Counter({"storms in real nodes": 1, "damaged copies": flip_bits(seed)})
    except Exception:  # noqa: BLE001 - the same
        traceback.print_exc(file=sys.stdout)
        print(f"FAILED: {AGAIN} --only stores --seed {seed}", flush=True)
        return Counter({"storms in real nodes": 1, "failed": 1})


def storms(seconds: float, only: str | None = None) -> int:
    """Storm after storm, each with a new seed, until the time is over; 1 if one of them failed."""
    began, told, done = time.monotonic(), 0.0, Counter[str]()
    spent = dict.fromkeys([only] if only else SHARES, 0.0)
    while (now := time.monotonic()) < began + seconds and done["failed"] < _MOST_FAILURES:
        kind = min(spent, key=lambda one: spent[one] / SHARES[one])
        seed = secrets.randbelow(10**12)
        done += stores_storm(seed) if kind == "stores" else machine_storm(seed, shrink=SHRINK_SECONDS)
        spent[kind] += time.monotonic() - now
        if now - told >= _TELL_EVERY:
            told = now
            print(f"{line(done)}; {began + seconds - now:.0f} s left", file=sys.stderr, flush=True)
    print(line(done) + ("" if done["failed"] else "; nothing failed"))
    return 1 if done["failed"] else 0


def line(done: Counter[str]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in done.items())


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=AGAIN, description="random failures, until the time is over")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--only", choices=sorted(SHARES), help="the machine alone, or machine, workers and real nodes alone")
    parser.add_argument("--seed", type=int, help="the storm of this seed alone")
    parser.add_argument("--steps", help="these of its steps alone, such as 3,4,17")
    given = parser.parse_args(words)
    if given.seed is None:
        return storms(60 * given.minutes, given.only)
    steps = [int(step) for step in given.steps.split(",")] if given.steps else None
    done = stores_storm(given.seed) if given.only == "stores" else machine_storm(given.seed, steps)
    print(line(done))
    return 1 if done["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
