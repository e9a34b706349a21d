"""Commands: only those that are signed, for this run, fresh and new are carried out; everything is in the audit log."""

from __future__ import annotations

import base64
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest

from monitoring import keys
from monitoring.channel import Channel, CommandSender
from monitoring.commands import (
    COMMANDS,
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
from monitoring.connection import Address, Connection
from monitoring.reader import MonitorReader
from monitoring.records import RunKey
from monitoring.server import start
from monitoring.signing import CommandRefused, Purpose, Signer
from ppa_core.errors import BadInput, RequestError
from ppa_core.settings import ProgramSettings
from tests.monitoring.tester import run

KEY = "0123456789abcdef-secret"
SIGNER = Signer(KEY.encode())
EVERY: list[Command] = [
    SetBudget(8), ChoosePlanner("greedy"), ApplyPlan(2, "exact", ("O1.1", "O2.1")), Replan(), Drain("node:n1"),
    Undrain("node:n1"), Fail("rack:r1"), Kill("rack:r1"), Restore("rack:r1"), Pause(), Resume(), Stop(),
]  # fmt: skip


@pytest.fixture
def operator(address: Address) -> CommandSender:
    return CommandSender(address, SIGNER)


@pytest.fixture
def channel(address: Address, pipeline: RunKey) -> Channel:
    return Channel(address, pipeline, SIGNER)


def put(connection: Connection, pipeline: RunKey, token: Any) -> None:
    run(connection, ("XADD", keys.commands(pipeline), "*", "token", token))


def audited(reader: MonitorReader, pipeline: RunKey) -> list[tuple[str, str, str]]:
    return [(line.who, line.outcome, line.text) for line in reader.audit(pipeline)]


@pytest.mark.parametrize("command", EVERY, ids=str)
def test_a_command_arrives_and_its_outcome_goes_back(
    operator: CommandSender, channel: Channel, pipeline: RunKey, reader: MonitorReader, command: Command
) -> None:
    assert channel.poll() == []
    id_ = operator.send(pipeline, command, "ada")
    (token,) = channel.poll()
    assert (token.id, token.command, token.who) == (id_, command, "ada")
    assert operator.wait(pipeline, id_, 0) is None
    channel.acknowledge(id_, "done", "as you wish")
    outcome = operator.wait(pipeline, id_, 1)
    assert outcome is not None
    assert (outcome.outcome, outcome.text) == ("done", "as you wish")
    assert audited(reader, pipeline) == [("ada", "accepted", ""), ("ada", "done", "as you wish")]
    assert {line.what for line in reader.audit(pipeline)} == {str(command)}


def test_every_command_is_tried() -> None:
    assert {type(command) for command in EVERY} == set(COMMANDS.values())
    for command in EVERY:
        assert read(json.loads(json.dumps(document_of(command)))) == command


@pytest.mark.parametrize(
    "document",
    [
        None, [], {}, {"command": "format"}, {"command": 7}, {"command": "set-budget"}, {"command": "set-budget", "budget": -1},
        {"command": "set-budget", "budget": True}, {"command": "set-budget", "budget": "8"},
        {"command": "set-budget", "budget": 1e3},
        {"command": "set-budget", "budget": 10**9}, {"command": "choose-planner", "planner": "best"},
        {"command": "choose-planner", "planner": ""}, {"command": "choose-planner", "planner": ["greedy"]},
        {"command": "drain"}, {"command": "drain", "target": "n1"}, {"command": "drain", "target": "node:"},
        {"command": "drain", "target": "NODE:n1"}, {"command": "drain", "target": "node:n1", "mode": "graceful"},
        {"command": "undrain", "target": ["node:n1"]}, {"command": "fail", "target": f"node:{'n' * 101}"},
        {"command": "kill", "target": "rack:a\nb"}, {"command": "kill", "target": 7}, {"command": "kill", "target": None},
        {"command": "restore", "target": "node: n1"}, {"command": "restore", "target": "node:\ud800"},
        {"command": "restore", "node": "n1"}, {"command": "stop", "now": True}, {"command": "stop", "\ud800": 1},
        {"command": "Stop"},
        {"command": "apply-plan", "budget": 1, "planner": "exact", "tasks": ["O1.1", "O2.1"]},
        {"command": "apply-plan", "budget": 1, "planner": "exact", "tasks": "O"},
        {"command": "apply-plan", "budget": 1, "planner": "exact", "tasks": [1]},
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused(document: Any) -> None:
    with pytest.raises(RequestError):
        read(document)


@pytest.mark.parametrize(
    ("document", "remedy"),
    [
        ({"command": "fail-over", "target": "node:n1"}, "fail-over is now drain (graceful) or fail (forced)"),
        ({"command": "bring-back", "node": "n1"}, "bring-back is now restore"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(document: Any, remedy: str) -> None:
    with pytest.raises(RequestError) as refused:
        read(document)
    assert refused.value.reason == remedy


def test_an_unsigned_a_forged_and_a_changed_command_are_refused_and_logged(
    channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    _, token = SIGNER.sign(SetBudget(1), pipeline, "ada")
    _, forged = Signer(b"another key of some length").sign(Stop(), pipeline, "mallory")
    put(connection, pipeline, b'{"command":"stop"}')
    put(connection, pipeline, forged)
    put(connection, pipeline, token.rpartition(b".")[0])
    put(connection, pipeline, token.replace(b'"budget":1', b'"budget":9'))
    put(connection, pipeline, b"\xff" * 50_000 + token)
    run(connection, ("XADD", keys.commands(pipeline), "*", "nothing", "here"))
    assert channel.poll() == []
    assert audited(reader, pipeline) == [
        ("", "refused", "2 entries: not signed"),
        ("", "refused", "3 entries: the signature is not valid"),
        ("", "refused", "1 entry: too large"),
    ]


def test_a_replayed_command_is_carried_out_once_and_the_second_logged(
    channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    _, token = SIGNER.sign(Replan(), pipeline, "ada")
    for _ in range(3):
        put(connection, pipeline, token)
    assert len(channel.poll()) == 1
    put(connection, pipeline, token)
    assert channel.poll() == []
    outcomes = [outcome for _, outcome, _ in audited(reader, pipeline)]
    assert outcomes == ["accepted", "refused", "refused", "refused"]
    assert "at most once" in audited(reader, pipeline)[1][2]


def test_at_most_once_across_a_restart_of_the_driver(
    address: Address, operator: CommandSender, channel: Channel, connection: Connection, pipeline: RunKey
) -> None:
    id_ = operator.send(pipeline, Stop(), "ada")
    (entry,) = run(connection, ("XRANGE", keys.commands(pipeline), "-", "+"))
    assert [token.id for token in channel.poll()] == [id_]  # and the driver dies before it could do or say anything
    again = Channel(address, pipeline, SIGNER)
    assert again.poll() == []
    outcome = operator.wait(pipeline, id_, 1)
    assert outcome is not None
    assert outcome.outcome == "unknown"
    put(connection, pipeline, entry[0][1][b"token"])
    assert Channel(address, pipeline, SIGNER).poll() == []


def test_a_command_sent_while_the_driver_was_away_waits_for_it(
    address: Address, operator: CommandSender, pipeline: RunKey
) -> None:
    first = Channel(address, pipeline, SIGNER)
    assert first.poll() == []
    id_ = operator.send(pipeline, Pause(), "ada")
    assert [token.id for token in Channel(address, pipeline, SIGNER).poll()] == [id_]
    assert first.poll() == []


@pytest.mark.parametrize(("age", "lifetime", "reason"), [(11, 10, "expired"), (61, 60, "expired"), (-300, 60, "in the future")])
def test_a_command_out_of_its_time_is_refused(
    channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader, age: float, lifetime: float, reason: str
) -> None:
    id_, token = SIGNER.sign(Stop(), pipeline, "ada", lifetime, now=time.time() - age)
    put(connection, pipeline, token)
    assert channel.poll() == []
    ((who, outcome, text),) = audited(reader, pipeline)
    assert (who, outcome) == ("ada", "refused")
    assert reason in text
    told = CommandSender(channel._connection.address, SIGNER).wait(pipeline, id_, 1)
    assert told is not None
    assert told.outcome == "refused"


def test_a_command_for_another_run_is_refused(
    channel: Channel, connection: Connection, pipeline: RunKey, reader: MonitorReader
) -> None:
    _, token = SIGNER.sign(Stop(), RunKey(pipeline.name, "other"), "ada")
    put(connection, pipeline, token)
    assert channel.poll() == []
    assert audited(reader, pipeline) == [("ada", "refused", "it is for another run")]


@pytest.mark.parametrize("change", [{"command": {"command": "rm"}}, {"id": "a:b"}, {"issued": None}, {"who": 7},
                                    {"pipeline": "x"}, {"expires": 1e300}, {"issued": "nan"}, {"expires": True}])  # fmt: skip
def test_signed_nonsense_is_refused(pipeline: RunKey, change: dict[str, Any]) -> None:
    document = SIGNER.verify_document("command", SIGNER.sign(Stop(), pipeline, "ada")[1])
    assert SIGNER.verify(SIGNER.sign_document("command", document), pipeline, time.time()).command == Stop()
    with pytest.raises(CommandRefused):
        SIGNER.verify(SIGNER.sign_document("command", {**document, **change}), pipeline, time.time())


@pytest.mark.parametrize("purpose", ["command", "outcome", "audit", "head"])
def test_a_signature_is_for_one_purpose_and_one_key(purpose: Purpose) -> None:
    value = SIGNER.sign_document(purpose, ["x"])
    assert SIGNER.verify_document(purpose, value) == ["x"]
    others: set[Purpose] = {"command", "outcome", "audit", "head"}
    for other in others - {purpose}:
        with pytest.raises(CommandRefused, match="the signature is not valid"):
            SIGNER.verify_document(other, value)
    with pytest.raises(CommandRefused, match="the signature is not valid"):
        Signer(b"another key of some length").verify_document(purpose, value)


def test_a_signature_has_one_spelling(pipeline: RunKey) -> None:
    """Base64 has many: with other characters in it, with padding, with other bits at its end."""
    _, token = SIGNER.sign(Stop(), pipeline, "ada")
    body, _, signature = token.rpartition(b".")
    assert SIGNER.verify(token, pipeline, time.time()).command == Stop()
    for other in (signature + b"=", signature + b"!", b" " + signature, signature[:20] + b"\n" + signature[20:]):
        with pytest.raises(CommandRefused, match="the signature is not valid"):
            SIGNER.verify(body + b"." + other, pipeline, time.time())
    for last in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        if last != signature[-1]:
            with pytest.raises(CommandRefused, match="the signature is not valid"):
                SIGNER.verify(body + b"." + signature[:-1] + bytes([last]), pipeline, time.time())


def test_the_signature_is_hmac_sha256_with_a_derived_key() -> None:
    key = hmac.digest(KEY.encode(), b"ppa outcome", "sha256")
    made = base64.urlsafe_b64encode(hmac.digest(key, b'["x"]', "sha256")).rstrip(b"=")
    assert SIGNER.sign_document("outcome", ["x"]) == b'["x"].' + made


def test_a_channel_without_its_monitor_waits_and_goes_on(folder: Path, pipeline: RunKey) -> None:
    with start(folder) as server:
        operator, channel = CommandSender(server.address, SIGNER), Channel(server.address, pipeline, SIGNER)
        id_ = operator.send(pipeline, Pause(), "ada")
        (token,) = channel.poll()
        server.kill()
        channel.acknowledge(token.id, "done")
        for _ in range(20):
            assert channel.poll() == []
        assert channel.trouble
        assert len(channel._pending) < 10, "what is to be said is not pushed out by what is said again and again"
        server.restart()
        assert channel.poll() == []
        assert channel.trouble == ""
        outcome = operator.wait(pipeline, id_, 1)
        assert outcome is not None
        assert outcome.outcome == "done"


def test_a_failed_command_says_why(operator: CommandSender, channel: Channel, pipeline: RunKey) -> None:
    id_ = operator.send(pipeline, Restore("node:n9"), "ada")
    channel.poll()
    channel.acknowledge(id_, "failed", "no such node")
    channel.acknowledge(id_, "done", "twice does not count")
    channel.acknowledge("never seen", "done")
    outcome = operator.wait(pipeline, id_, 1)
    assert outcome is not None
    assert (outcome.outcome, outcome.text) == ("failed", "no such node")


@pytest.mark.parametrize("who", ["", " ", "a\nb", "x" * 101])
def test_who_must_be_a_name(operator: CommandSender, pipeline: RunKey, who: str) -> None:
    with pytest.raises(RequestError, match="who"):
        operator.send(pipeline, Stop(), who)


def test_the_key_is_made_once_private_and_never_shown(folder: Path) -> None:
    first = Signer.find(folder, ProgramSettings())
    assert Signer.find(folder, ProgramSettings()) == first
    path = folder / "operator.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() not in repr(first)
    assert list(folder.iterdir()) == [path]
    assert Signer.find(folder, ProgramSettings(operator_key=KEY)) == SIGNER
    path.chmod(0o640)
    with pytest.raises(BadInput, match="chmod 600") as refused:
        Signer.find(folder, ProgramSettings())
    assert path.read_text() not in str(refused.value)
    with pytest.raises(BadInput, match="shorter") as refused:
        Signer.find(folder, ProgramSettings(operator_key="short"))
    assert "short'" not in str(refused.value)
