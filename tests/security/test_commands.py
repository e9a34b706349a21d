"""Attacks on commands by someone who can do anything to the monitor's Redis, without the operator's key or a private file.

Nothing is carried out twice or too late, nobody else answers for the pipeline, and what was done to the audit log shows.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from monitoring import audit, keys, refusals
from monitoring.audit import Chain
from monitoring.channel import Channel, CommandSender
from monitoring.commands import Pause, Replan, Resume, SetBudget, Stop
from monitoring.connection import Address, Connection
from monitoring.main import main
from monitoring.private import FOLDER, SENDER_FILE, ChannelState, SenderNumbers
from monitoring.reader import MonitorReader
from monitoring.records import CommandOutcome, PipelineInfo, RunKey
from monitoring.server import MonitorServer
from monitoring.signing import LIFETIME, MAX_LIFETIME, SKEW, Signer, Token
from monitoring.writer import Writer
from ppa_core.driver.commands import run_commands
from ppa_core.driver.controls import Controls
from ppa_core.driver.host import Host
from ppa_core.driver.records import Settings
from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.numbers import KEPT, REMEMBER, SequenceNumbers
from ppa_core.nodes.embedded import launch
from ppa_core.placement.nodes import Node
from ppa_core.queries.tree import tree
from tests.monitoring.conftest import *  # noqa: F403 - a real monitor, and a connection that may do anything there
from tests.monitoring.tester import run

SIGNER = Signer(b"0123456789abcdef-secret")
Entry = dict[bytes, bytes]


@pytest.fixture
def operator(address: Address) -> Iterator[CommandSender]:
    opened = CommandSender(address, SIGNER)
    yield opened
    opened.close()


@pytest.fixture
def channel(address: Address, pipeline: RunKey) -> Iterator[Channel]:
    opened = Channel(address, pipeline, SIGNER)
    yield opened
    opened.close()


def stolen(connection: Connection, pipeline: RunKey) -> list[Entry]:
    """The commands that are under way, as a thief copies them."""
    (found,) = run(connection, ("XRANGE", keys.commands(pipeline), "-", "+"))
    return [fields for _, fields in found]


def put(connection: Connection, pipeline: RunKey, *entries: Entry) -> None:
    run(connection, *(("XADD", keys.commands(pipeline), "*", *sum(entry.items(), ())) for entry in entries))


def signed(pipeline: RunKey, command: Any, **more: Any) -> Entry:
    return {b"token": SIGNER.sign(command, pipeline, "ada", **more)[1]}


def wipe(connection: Connection, pipeline: RunKey) -> None:
    (names,) = run(connection, ("KEYS", "ppa:monitor:*"))
    mine = [name for name in names if keys.member(pipeline).encode() in name]
    run(connection, ("DEL", *mine))


def forget_folder(address: Address) -> None:
    shutil.rmtree(address.directory / FOLDER, ignore_errors=True)


def outcomes(reader: MonitorReader, pipeline: RunKey) -> list[tuple[str, str]]:
    return [(line.outcome, line.text) for line in reader.audit(pipeline)]


# ------------------------------------------------------------------------------------------------------------------ replay


def test_an_old_entry_that_is_added_again_is_refused_whatever_was_deleted(
    operator: CommandSender, channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    operator.send(pipeline, SetBudget(1), "ada")
    entries = stolen(connection, pipeline)
    (token,) = channel.poll()
    channel.acknowledge(token.id, "done")
    for _ in range(3):
        wipe(connection, pipeline)
        put(connection, pipeline, *entries)
        assert channel.poll() == []
    assert [outcome for outcome, _ in outcomes(reader, pipeline)] == ["refused"]
    assert "at most once" in outcomes(reader, pipeline)[0][1]


@pytest.mark.parametrize("known", ["private file", "ledger"])
def test_an_old_entry_is_refused_after_a_restart_with_an_empty_redis(
    address: Address, operator: CommandSender, connection: Connection, pipeline: RunKey, known: str
) -> None:
    first, ledger = Channel(address, pipeline, SIGNER), SequenceNumbers()
    operator.send(pipeline, Replan(), "ada")
    operator.send(pipeline, SetBudget(1), "ada")
    entries = stolen(connection, pipeline)
    tokens = first.poll()
    assert len(tokens) == 2
    for token in tokens:
        assert ledger.take(token.id, 1000.0)
    wipe(connection, pipeline)
    put(connection, pipeline, *entries)
    if known == "ledger":
        forget_folder(address)
        again = Channel(address, pipeline, SIGNER, ledger.taken())
    else:
        again = Channel(address, pipeline, SIGNER)
    assert again.poll() == []
    put(connection, pipeline, *entries)
    assert again.poll() == []


def test_a_restarted_driver_knows_from_the_ledger_what_was_carried_out() -> None:
    """The driver's own check, behind the channel's: it takes a number before it does anything."""
    numbers = SequenceNumbers()
    assert numbers.take("0123456789abcdef-1", 1000.0)
    assert numbers.take("0123456789abcdef-3", 1000.0)
    again = SequenceNumbers(numbers.taken())
    assert not again.take("0123456789abcdef-1", 1000.0)
    assert not again.take("0123456789abcdef-2", 1000.0)
    assert not again.take("0123456789abcdef-3", 1000.0)
    assert again.take("0123456789abcdef-4", 1000.0)
    assert again.take("fedcba9876543210-1", 1000.0)


def test_senders_are_forgotten_only_when_their_commands_have_expired() -> None:
    numbers = SequenceNumbers()
    for sender in range(KEPT + 40):
        assert numbers.take(f"{sender:016x}-7", 1000.0)
    assert all(not numbers.take(f"{sender:016x}-7", 1001.0) for sender in range(KEPT + 40))
    assert numbers.take("ffffffffffffffff-1", 1001.0 + REMEMBER)
    assert len(numbers.taken()) == KEPT
    assert REMEMBER > 2 * (MAX_LIFETIME + SKEW)
    assert LIFETIME <= 10


@pytest.mark.parametrize("known", [{"x": [1, 2]}, {"0123456789abcdef": None}, {"0123456789abcdef": ["a", 1]}, {"": []}])
def test_what_is_no_number_is_passed_over(known: dict[str, Any]) -> None:
    assert SequenceNumbers(known).taken() == {}


# ------------------------------------------------------------------------------------------------- swallowed and inserted


def test_a_swallowed_pause_shows_and_is_refused_when_it_is_inserted_later(
    operator: CommandSender, channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    swallowed = operator.send(pipeline, Pause(), "ada")
    pause = stolen(connection, pipeline)
    run(connection, ("DEL", keys.commands(pipeline)))
    assert channel.poll() == []
    assert operator.wait(pipeline, swallowed, 0.1) is None  # no answer, and not "done"
    operator.send(pipeline, Resume(), "ada")
    assert [token.command for token in channel.poll()] == [Resume()]
    assert ("missing", "command 1 of this sender never arrived") in outcomes(reader, pipeline)
    put(connection, pipeline, *pause)
    assert channel.poll() == []
    assert operator.wait(pipeline, swallowed, 0.1) is None


def test_a_command_that_is_held_back_expires_within_seconds(
    operator: CommandSender, channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    id_ = operator.send(pipeline, Stop(), "ada", lifetime=1.0)
    entries = stolen(connection, pipeline)
    run(connection, ("DEL", keys.commands(pipeline)))
    time.sleep(1.1)
    put(connection, pipeline, *entries)
    assert channel.poll() == []
    assert outcomes(reader, pipeline) == [("refused", "it has expired")]
    told = operator.wait(pipeline, id_, 1)
    assert told is not None
    assert told.outcome == "refused"
    put(connection, pipeline, *entries)
    assert channel.poll() == []


def test_a_command_of_a_wrong_clock_is_refused_for_good(channel: Channel, connection: Connection, pipeline: RunKey) -> None:
    early = signed(pipeline, Stop(), now=time.time() + SKEW + 1.0)
    put(connection, pipeline, early)
    assert channel.poll() == []
    time.sleep(1.1)  # now it would hold
    put(connection, pipeline, early)
    assert channel.poll() == []


def test_many_senders_at_once_are_all_heard_and_in_order(
    address: Address, channel: Channel, pipeline: RunKey, reader: MonitorReader
) -> None:
    def send() -> None:
        mine = CommandSender(address, SIGNER)
        for _ in range(10):
            mine.send(pipeline, Replan(), "ada")
        mine.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    taken: list[Token] = []
    while any(thread.is_alive() for thread in threads):
        taken += channel.poll()
    taken += channel.poll()
    assert len(taken) == 40
    assert {outcome for outcome, _ in outcomes(reader, pipeline)} == {"accepted"}


def test_a_folder_that_cannot_be_used_makes_a_sender_of_its_own(tmp_path: Path, pipeline: RunKey) -> None:
    (tmp_path / "file").write_text("")
    sender = SenderNumbers(tmp_path / "file" / "monitor")
    with sender.next(pipeline) as first, sender.next(pipeline) as second:
        assert first[:-1] == second[:-1]
        assert (first[-1], second[-1]) == ("1", "2")
    for content in ("", "[]", '{"tree:x": 7}', "{"):
        path = tmp_path / SENDER_FILE
        path.write_text(content)
        with SenderNumbers(tmp_path).next(pipeline) as id_:
            assert id_.endswith("-1")
        assert path.stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------------------------------------------------------- outcomes


def forged_outcome(kind: str, pipeline: RunKey, id_: str, other: bytes) -> Any:
    match kind:
        case "unsigned":
            return b'[1763251200.0,"%s","done"]' % id_.encode()
        case "another command's":
            return other
        case "signed as a command":
            return SIGNER.sign_document("command", [pipeline.name, pipeline.run, id_, "", 1.0, "done", ""])
        case "another key's":
            return Signer(b"another key of some length").sign_document(
                "outcome", [pipeline.name, pipeline.run, id_, "", 1.0, "done", ""]
            )
        case "another run's":
            return SIGNER.sign_document("outcome", [pipeline.name, "other", id_, "", 1.0, "done", ""])
        case _:
            return SIGNER.sign_document("outcome", [pipeline.name, pipeline.run, id_, "0" * 64, 1.0, "done", ""])


@pytest.mark.parametrize(
    "kind", ["unsigned", "another command's", "signed as a command", "another key's", "another run's", "another digest"]
)
def test_a_forged_outcome_is_passed_over_and_reported(
    operator: CommandSender, channel: Channel, connection: Connection, pipeline: RunKey, kind: str
) -> None:
    done = operator.send(pipeline, Replan(), "ada")
    channel.poll()
    channel.acknowledge(done, "done")
    (other,) = run(connection, ("GET", keys.outcome(pipeline, done)))
    assert operator.trouble == ""
    id_ = operator.send(pipeline, Pause(), "ada")
    run(
        connection,
        ("DEL", keys.commands(pipeline)),
        ("SET", keys.outcome(pipeline, id_), forged_outcome(kind, pipeline, id_, other)),
    )
    assert operator.wait(pipeline, id_, 0.1) is None
    assert "did not sign" in operator.trouble


def test_send_says_no_answer_and_never_done_for_a_forged_one(
    address: Address, info: PipelineInfo, connection: Connection, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Writer(address, info).close(5)
    over = threading.Event()

    def thief() -> None:
        """Takes every command away and says that it was done."""
        while not over.wait(0.02):
            for entry in stolen(connection, info.pipeline):
                id_ = entry[b"token"].split(b'"id":"')[1].split(b'"')[0].decode()
                forged = forged_outcome("unsigned", info.pipeline, id_, b"")
                run(connection, ("DEL", keys.commands(info.pipeline)), ("SET", keys.outcome(info.pipeline, id_), forged))

    thread = threading.Thread(target=thief)
    thread.start()
    try:
        code = main(["send", "pause", "--wait", "1", "--pipeline", str(info.pipeline), "--directory", str(address.directory)])
    finally:
        over.set()
        thread.join()
    errors = capsys.readouterr().err
    assert code == 1
    assert "no answer" in errors
    assert "someone else writes to the monitor" in errors


# --------------------------------------------------------------------------------------------------------------- audit log


@pytest.fixture
def lines(address: Address, operator: CommandSender, pipeline: RunKey) -> Channel:
    """A run with ten lines in its log, and more commands to come."""
    channel = Channel(address, pipeline, SIGNER)
    for budget in range(5):
        id_ = operator.send(pipeline, SetBudget(budget), "ada")
        channel.poll()
        channel.acknowledge(id_, "done")
    return channel


def chain(address: Address, pipeline: RunKey) -> Chain:
    reader = MonitorReader(address)
    found = reader.chain(pipeline, SIGNER)
    reader.close()
    return found


def entry(connection: Connection, pipeline: RunKey, number: int) -> list[Any]:
    (found,) = run(connection, ("XRANGE", keys.audit(pipeline), f"{number}-0", f"{number}-0"))
    return [part for pair in found[0][1].items() for part in pair]


def rebuild(connection: Connection, pipeline: RunKey, order: list[tuple[int, int]]) -> None:
    """Write the log anew: line `a` where line `b` was."""
    known = {a: entry(connection, pipeline, a) for a, _ in order}
    name = keys.audit(pipeline)
    run(connection, ("DEL", name), *(("XADD", name, f"{b}-0", *known[a]) for a, b in order))


def alter(connection: Connection, pipeline: RunKey) -> None:
    fields = entry(connection, pipeline, 4)
    fields[1] = fields[1].replace(b'"done"', b'"failed"')
    known = [(n, entry(connection, pipeline, n)) for n in range(1, 11)]
    name = keys.audit(pipeline)
    run(connection, ("DEL", name), *(("XADD", name, f"{n}-0", *(fields if n == 4 else content)) for n, content in known))


TAMPERED: dict[str, tuple[Callable[[Connection, RunKey], object], str]] = {
    "altered": (alter, "#4 was altered or moved"),
    "removed": (lambda c, p: run(c, ("XDEL", keys.audit(p), "4-0", "5-0")), "#4 to #5 are missing"),
    "first removed": (lambda c, p: run(c, ("XDEL", keys.audit(p), "1-0")), "#1 is missing"),
    "reordered": (
        lambda c, p: rebuild(c, p, [(n, {4: 6, 6: 4}.get(n, n)) for n in (1, 2, 3, 6, 5, 4, 7, 8, 9, 10)]),
        "#4 was altered or moved",
    ),
    "renumbered": (lambda c, p: rebuild(c, p, [(n, n if n < 4 else n - 1) for n in range(1, 11) if n != 4]), "#4 was altered"),
    "truncated": (lambda c, p: run(c, ("XDEL", keys.audit(p), "9-0", "10-0")), "#9 to #10 are missing at the end of the log"),
    "put in": (lambda c, p: run(c, ("XADD", keys.audit(p), "11-0", *entry(c, p, 10))), "#11 was altered or moved"),
    "put in between": (lambda c, p: run(c, ("XADD", keys.audit(p), "10-5", *entry(c, p, 10))), "entry 10-5"),
    "all gone": (wipe, "#1 to #10 are missing at the end of the log"),
    "head gone": (lambda c, p: run(c, ("DEL", keys.audit_head(p))), "head of the log is missing"),
    "other type": (lambda c, p: run(c, ("SET", keys.audit(p), "x")), "#1 to #10 are missing"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_was_done_to_the_audit_log_shows_and_where(
    address: Address, lines: Channel, connection: Connection, pipeline: RunKey, how: str
) -> None:
    assert str(chain(address, pipeline)).startswith("audit log intact from #1 up to #10")
    act, said = TAMPERED[how]
    act(connection, pipeline)
    found = chain(address, pipeline)
    assert not found.intact
    assert said in found.problems[0]
    if how in ("altered", "removed"):
        assert len(found.problems) == 1
    lines.close()
    assert not chain(address, pipeline).intact  # and it does not heal


@pytest.mark.parametrize("how", sorted(set(TAMPERED) - {"all gone"}))
def test_it_shows_on_another_machine_that_has_only_the_key(
    address: Address, lines: Channel, connection: Connection, pipeline: RunKey, how: str
) -> None:
    forget_folder(address)
    assert chain(address, pipeline).intact
    TAMPERED[how][0](connection, pipeline)
    assert not chain(address, pipeline).intact


def test_a_log_that_was_put_back_to_an_older_state_shows(
    address: Address, operator: CommandSender, lines: Channel, connection: Connection, pipeline: RunKey
) -> None:
    (head,) = run(connection, ("GET", keys.audit_head(pipeline)))
    id_ = operator.send(pipeline, Pause(), "ada")
    lines.poll()
    lines.acknowledge(id_, "done")
    assert chain(address, pipeline).last == 12
    run(connection, ("XDEL", keys.audit(pipeline), "11-0", "12-0"), ("SET", keys.audit_head(pipeline), head))
    assert chain(address, pipeline).problems == ("#11 to #12 are missing at the end of the log",)
    forget_folder(address)  # on another machine its age shows
    confirmed = chain(address, pipeline).confirmed
    assert confirmed is not None
    assert "s ago" in str(chain(address, pipeline))


def test_the_log_goes_on_after_a_restart_and_after_the_folder_is_lost(
    address: Address, operator: CommandSender, lines: Channel, pipeline: RunKey
) -> None:
    ledger = SequenceNumbers()
    for lost in (False, True):
        if lost:
            forget_folder(address)
        again = Channel(address, pipeline, SIGNER, ledger.taken())
        id_ = operator.send(pipeline, Replan(), "ada")
        assert len(again.poll()) == 1
        assert ledger.take(id_, 1000.0)
        again.acknowledge(id_, "done")
        again.close()
    found = chain(address, pipeline)
    assert (found.first, found.last, found.problems) == (1, 14, ())


def test_trimming_is_no_tampering_but_cutting_more_is(
    address: Address, operator: CommandSender, connection: Connection, pipeline: RunKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "AUDIT", 10)
    monkeypatch.setattr(audit, "SLACK", 5)
    channel = Channel(address, pipeline, SIGNER)
    for _ in range(20):
        id_ = operator.send(pipeline, Replan(), "ada")
        channel.poll()
        channel.acknowledge(id_, "done")
    found = chain(address, pipeline)
    assert found.problems == ()
    assert found.last == 40
    assert found.first > 20
    assert run(connection, ("XLEN", keys.audit(pipeline)))[0] <= 15
    run(connection, ("XDEL", keys.audit(pipeline), f"{found.first}-0"))
    assert chain(address, pipeline).problems == (f"#{found.first} is missing",)


def test_lines_that_wait_for_the_monitor_are_not_taken_for_missing(address: Address, lines: Channel, pipeline: RunKey) -> None:
    memory = ChannelState.load(address, pipeline)
    assert memory is not None
    memory.number, memory.mac = memory.number + 2, "0" * 64  # two lines more that the monitor does not have yet
    memory.save(address, pipeline)
    assert chain(address, pipeline).intact


def test_audit_says_where_and_exits_1(
    address: Address, info: PipelineInfo, connection: Connection, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PPA_OPERATOR_KEY", SIGNER.key.decode())
    Writer(address, info).close(5)
    operator, channel = CommandSender(address, SIGNER), Channel(address, info.pipeline, SIGNER)
    operator.send(info.pipeline, Pause(), "ada")
    (token,) = channel.poll()
    channel.acknowledge(token.id, "done")
    arguments = ["audit", "--directory", str(address.directory)]
    code, said = main(arguments), capsys.readouterr()
    assert f"{info.pipeline}: audit log intact from #1 up to #2" in said.err
    run(connection, ("XDEL", keys.audit(info.pipeline), "1-0"))
    code, said = main(arguments), capsys.readouterr()
    assert code == 1
    assert f"{info.pipeline}: audit log BROKEN: #1 is missing" in said.err
    run(connection, ("FLUSHALL",))
    code, said = main(arguments), capsys.readouterr()
    assert code == 1
    assert f"{info.pipeline}: audit log BROKEN: #1 to #2 are missing" in said.err


def test_audit_without_the_key_says_that_nothing_was_checked(
    server: MonitorServer,
    info: PipelineInfo,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PPA_MONITOR_URL", server.address.current())
    Writer(server.address, info).close(5)
    channel = Channel(server.address, info.pipeline, SIGNER)
    CommandSender(server.address, SIGNER).send(info.pipeline, Pause(), "ada")
    assert len(channel.poll()) == 1
    assert main(["audit", "--directory", str(tmp_path / "elsewhere")]) == 1
    said = capsys.readouterr()
    assert "not checked" in said.err
    assert "accepted" in said.out
    assert not (tmp_path / "elsewhere").exists()


# ------------------------------------------------------------------------------------------------------------------- flood


def until_heard(channel: Channel, seconds: float) -> tuple[list[Token], float]:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        found = channel.poll()
        if found:
            return found, time.monotonic() - began
    raise AssertionError(f"no command within {seconds} s")


def flood(connection: Connection, pipeline: RunKey, many: int, *fields: Any) -> None:
    for _ in range(0, many, 1_000):
        run(connection, *([("XADD", keys.commands(pipeline), "*", *fields)] * 1_000))


def test_a_good_command_among_60_000_junk_entries_is_heard_at_once(
    channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    flood(connection, pipeline, 30_000, "token", "{}" * 50 + "." + "0" * 43)
    put(connection, pipeline, signed(pipeline, Pause(), lifetime=60.0))
    flood(connection, pipeline, 30_000, "junk", "x")
    found, seconds = until_heard(channel, 30)
    assert [token.command for token in found] == [Pause()]
    assert seconds < 10, "about one second on a quiet machine"
    while run(connection, ("XLEN", keys.commands(pipeline)))[0]:
        channel.poll()
    channel.close()
    said = outcomes(reader, pipeline)
    assert len(said) < 10, "junk is counted and has no line each"
    assert sum(int(text.split()[0]) for outcome, text in said if outcome == "refused") == 60_000


def test_a_signed_command_that_is_replayed_5_000_times_fills_no_log(
    channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    entry = signed(pipeline, Replan())
    flood(connection, pipeline, 5_000, *[part for pair in entry.items() for part in pair])
    taken = channel.poll()
    while run(connection, ("XLEN", keys.commands(pipeline)))[0]:
        taken += channel.poll()
    channel.close()
    assert len(taken) == 1
    assert len(outcomes(reader, pipeline)) <= 1 + refusals.LINES + 2


def test_huge_entries_do_not_block_control(channel: Channel, connection: Connection, pipeline: RunKey) -> None:
    for _ in range(40):
        run(connection, ("XADD", keys.commands(pipeline), "*", "token", b"x" * 4_000_000 + b"." + b"0" * 43))
    put(connection, pipeline, signed(pipeline, Pause(), lifetime=60.0))
    found, _ = until_heard(channel, 30)
    assert [token.command for token in found] == [Pause()]


@pytest.mark.parametrize("how", ["far future", "far future and empty", "other type"])
def test_a_stream_that_takes_no_command_any_more_is_mended(
    address: Address, operator: CommandSender, connection: Connection, pipeline: RunKey, how: str
) -> None:
    name, last = keys.commands(pipeline), "18446744073709551615-18446744073709551615"
    if how == "other type":
        run(connection, ("SET", name, "x"))
    else:
        run(connection, ("XADD", name, last, "a", "b"))
        if how.endswith("empty"):
            run(connection, ("XDEL", name, last))
    channel = Channel(address, pipeline, SIGNER)
    channel.poll()
    id_ = operator.send(pipeline, Pause(), "ada")
    assert [token.id for token in channel.poll()] == [id_]
    assert any("unusable" in text for _, text in outcomes(MonitorReader(address), pipeline))


def test_who_sends_writes_to_the_stream_of_commands_and_nowhere_else(
    operator: CommandSender, connection: Connection, pipeline: RunKey
) -> None:
    def names() -> set[bytes]:
        return set(run(connection, ("KEYS", "*"))[0])

    before = names()
    id_ = operator.send(pipeline, Pause(), "ada")
    operator.wait(pipeline, id_, 0)
    assert names() - before == {keys.commands(pipeline).encode()}


def test_outcomes_are_records(operator: CommandSender, channel: Channel, pipeline: RunKey) -> None:
    id_ = operator.send(pipeline, Pause(), "ada")
    channel.poll()
    channel.acknowledge(id_, "done", "ä" * 5_000)
    told = operator.wait(pipeline, id_, 1)
    assert isinstance(told, CommandOutcome)
    assert len(told.text) == 2_000


# ------------------------------------------------------------------------------------------------------------------ ledger


def test_the_driver_takes_a_command_in_the_ledger_before_it_carries_it_out() -> None:
    """Real nodes, and the driver's own loop: a driver that is started again carries out nothing that the one before did."""
    pipeline, told = tree(tasks=(4, 2, 1)), list[Any]()

    def driver(nodes: tuple[Node, ...], *ids: str) -> Host:
        host = Host(cast(Any, None), pipeline, nodes, frozenset(), Settings(), run_id="ledger")
        controls = Controls(host, PlanRequest(0, "greedy", "of"))
        host.resume()
        host.started.set()
        commands: Iterator[dict[str, Any] | None] = iter([*({"do": "pause", "id": id_} for id_ in ids), None])
        told.clear()
        run_commands(lambda: next(commands), controls, told.append)
        end = time.monotonic() + 20
        while len(told) < len(ids) and time.monotonic() < end:
            time.sleep(0.01)
        return host

    with launch(2, 1, 2, 32) as embedded:
        nodes = embedded.cluster.nodes
        first = driver(nodes, "0123456789abcdef-1", "0123456789abcdef-1", "junk")
        assert sorted(answer.outcome for answer in told) == ["done", "failed", "failed"]
        assert first.machine.intent.paused
        again = driver(nodes, "0123456789abcdef-1", "0123456789abcdef-2")
        assert sorted((answer.id, answer.outcome) for answer in told) == [
            ("0123456789abcdef-1", "failed"),
            ("0123456789abcdef-2", "done"),
        ]
        assert again.machine.intent.paused, "it was paused, and that is in the ledger too"
        assert again.machine.intent.commands["0123456789abcdef"][0] == 2
