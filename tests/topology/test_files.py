"""The topology file: both ways, and whatever is wrong with one ends in a `TopologyError` with place and reason."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ppa_core.errors import TopologyError
from ppa_core.topology import (
    Input,
    Partitioning,
    Topology,
    derive,
    dump,
    dumps,
    from_dict,
    load,
    load_example,
    loads,
    names,
    to_dict,
)
from tests.strategies import quick, topologies

DESIGN = """{"name": "demo",
 "operators": [
   {"name": "O1", "tasks": 4, "rate": 1000},
   {"name": "O2", "tasks": 2, "rate": [800, 1200]},
   {"name": "O3", "tasks": 4, "input": "correlated", "selectivity": 0.5, "weights": [4, 3, 2, 1]}],
 "edges": [
   {"from": "O1", "to": "O3", "partitioning": "one-to-one"},
   {"from": "O2", "to": "O3", "partitioning": "split"}]}
"""

MISSING = object()


def changed(*path: str | int, to: Any = MISSING) -> str:
    """The design's example with the value at `path` replaced, or taken out."""
    document = json.loads(DESIGN)
    place = document
    for key in path[:-1]:
        place = place[key]
    if to is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return json.dumps(document)


def refusal(text: str) -> TopologyError:
    with pytest.raises(TopologyError) as caught:
        loads(text)
    return caught.value


def test_the_designs_example_is_read_as_it_says() -> None:
    topology = loads(DESIGN)
    assert topology.name == "demo"
    assert topology.by_name["O1"].rate == (1000.0,) * 4
    assert topology.by_name["O3"].input is Input.CORRELATED
    assert [edge.partitioning for edge in topology.edges] == [Partitioning.ONE_TO_ONE, Partitioning.SPLIT]
    rates = derive(topology)
    from_o2 = [800 * 4 / 7, 800 * 3 / 7, 1200 * 2 / 3, 1200 * 1 / 3]
    assert list(rates.output[6:]) == pytest.approx([0.5 * (1000 + rate) for rate in from_o2])


def test_what_is_left_out_has_its_default() -> None:
    topology = loads('{"operators": [{"name": "A", "tasks": 1, "rate": 0}]}')
    assert (topology.name, topology.edges, topology.measured) == ("unnamed", (), {})


@quick
@given(topologies())
def test_writing_and_reading_gives_the_same_topology(topology: Topology) -> None:
    assert loads(dumps(topology)) == topology
    assert from_dict(json.loads(json.dumps(to_dict(topology)))) == topology


def test_a_file_is_written_one_operator_or_edge_a_line_and_read_back(tmp_path: Path) -> None:
    topology = Topology("Größe ✓", load_example("tree").operators, load_example("tree").edges, {"S.1>O1.1": 0.1})
    dump(topology, tmp_path / "tree.json")
    assert load(tmp_path / "tree.json") == topology
    assert len((tmp_path / "tree.json").read_text(encoding="utf-8").splitlines()) == 2 + 5 + 1 + 4 + 1


WRONG_VALUES = [
    (("name",), 7, "name: 7 is not a string"),
    (("name",), "\ud800", r"name: '\ud800' contains a character that is not printable"),
    (("operators",), MISSING, "file: the field 'operators' is missing"),
    (("operators",), [], "operators: the list is empty"),
    (("operators",), {}, "operators: {} is not a list"),
    (("operators", 0), "O1", 'operators[0]: "O1" is not an object'),
    (("operators", 0, "name"), MISSING, "operators[0]: the field 'name' is missing"),
    (("operators", 0, "name"), None, "operators[0].name: null is not a string"),
    (("operators", 0, "name"), "O2", "operators[1] 'O2': another operator has the same name"),
    (("operators", 0, "name"), "O>1", "operators[0].name: 'O>1' contains a character that is not allowed"),
    (("operators", 0, "name"), "\ud800", r"operators[0].name: '\ud800' contains a character that is not allowed"),
    (("operators", 0, "tasks"), True, "operators[0] 'O1'.tasks: true is not a whole number"),
    (("operators", 0, "tasks"), 4.0, "operators[0] 'O1'.tasks: 4.0 is not a whole number"),
    (("operators", 0, "tasks"), 0, "operators[0] 'O1'.tasks: 0 is not a number of tasks from 1 to 1000000"),
    (("operators", 0, "tasks"), 10**30, "operators[0] 'O1'.tasks: 1000000000000000000000000000000 is not a number of tasks"),
    (("operators", 0, "taks"), 4, "operators[0]: unknown field \"taks\"; did you mean 'tasks'?"),
    (("operators", 0, "zzz"), 4, 'operators[0]: unknown field "zzz"; the fields are external, input, name,'),
    (("operators", 0, "rate"), MISSING, "operators[0] 'O1': no edge leads here, so it is a source and needs a 'rate'"),
    (("operators", 0, "rate"), -1, "operators[0] 'O1'.rate[0]: -1.0 is not a number from 0"),
    (("operators", 0, "rate"), False, "operators[0] 'O1'.rate: false is not a number"),
    (("operators", 0, "rate"), "1000", "operators[0] 'O1'.rate: \"1000\" is not a number"),
    (("operators", 0, "rate"), 10**400, "… is too large"),
    (("operators", 0, "rate"), 1e16, "operators[0] 'O1'.rate[0]: 1e+16 is not a number from 0 to 1e+15"),
    (("operators", 0, "rate"), [1, 2, 3], "operators[0] 'O1'.rate: 3 rates for 4 tasks"),
    (("operators", 0, "rate"), [1, 2, 3, None], "operators[0] 'O1'.rate[3]: null is not a number"),
    (("operators", 0, "external"), 1, "operators[0] 'O1'.external: 1 is not true or false"),
    (("operators", 2, "rate"), 5, "operators[2] 'O3'.rate: only a source has a rate"),
    (("operators", 2, "external"), True, "operators[2] 'O3'.external: only a source can be external"),
    (("operators", 2, "input"), "both", "operators[2] 'O3'.input: \"both\" is not one of independent, correlated"),
    (("operators", 2, "input"), ["correlated"], "operators[2] 'O3'.input: [\"correlated\"] is not one of"),
    (("operators", 2, "selectivity"), -0.5, "operators[2] 'O3'.selectivity: -0.5 is not a number from 0"),
    (("operators", 2, "selectivity"), None, "operators[2] 'O3'.selectivity: null is not a number"),
    (("operators", 2, "weights"), [4, 3, 2], "operators[2] 'O3'.weights: 3 weights for 4 tasks; give one number per task"),
    (("operators", 2, "weights"), [], "operators[2] 'O3'.weights: 0 weights for 4 tasks"),
    (("operators", 2, "weights"), [0, 0, 0, 0], "operators[2] 'O3'.weights: all weights are 0"),
    (("operators", 2, "weights"), [1, 1, -1, 1], "operators[2] 'O3'.weights[2]: -1.0 is not a number from 0"),
    (("operators", 2, "weights"), 1, "operators[2] 'O3'.weights: 1 is not a list"),
    (("operators", 2, "tasks"), 5, "operators[2] 'O3'.weights: 4 weights for 5 tasks"),
    (("edges",), None, "edges: null is not a list"),
    (("edges", 0), [], "edges[0]: [] is not an object"),
    (("edges", 0, "to"), MISSING, "edges[0]: the field 'to' is missing"),
    (("edges", 0, "from"), "O9", "edges[0] 'O9'->'O3'.from: unknown operator 'O9'"),
    (("edges", 0, "from"), "O3", "edges[0] 'O3'->'O3': an operator cannot feed itself"),
    (("edges", 0, "from"), "O2", "edges[0] 'O2'->'O3'.partitioning: one-to-one needs the same number of tasks on both sides"),
    (("edges", 0, "to"), {}, "edges[0].to: {} is not a string"),
    (("edges", 0, "partitioning"), "hash", 'edges[0].partitioning: "hash" is not one of one-to-one, split, merge, full'),
    (("edges", 0, "partitioning"), "merge", "edges[0] 'O1'->'O3'.partitioning: merge needs more tasks upstream"),
    (("edges", 1), {"from": "O1", "to": "O3", "partitioning": "full"}, "edges[1] 'O1'->'O3': duplicate edge"),
    (("measured",), [1], "measured: [1] is not an object that maps substreams to rates"),
    (("measured",), {"O1.1": 5}, "measured['O1.1']: not a substream; write it as 'O1.1>O3.1'"),
    (("measured",), {"O1.1>O3.2": 5}, "measured['O1.1>O3.2']: O1.1 sends nothing to O3.2"),
    (("measured",), {"O1.1>O3.1": -5}, "measured['O1.1>O3.1']: -5.0 is not a number"),
    (("measured",), {"O1.1>O3.1": True}, "measured['O1.1>O3.1']: true is not a number"),
    (("comment",), "hello", 'file: unknown field "comment"; the fields are edges, measured, name, operators'),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG_VALUES, ids=[str(n) for n in range(len(WRONG_VALUES))])
def test_a_wrong_value_is_refused_with_place_and_reason(path: tuple[str | int, ...], value: Any, message: str) -> None:
    assert message in str(refusal(changed(*path, to=value)))


def test_a_cycle_is_refused_with_its_operators() -> None:
    document = json.loads(DESIGN)
    document["operators"].append({"name": "O4", "tasks": 4})
    document["edges"] += [{"from": up, "to": down, "partitioning": "full"} for up, down in (("O3", "O4"), ("O4", "O3"))]
    assert "cycle among 'O3', 'O4'" in str(refusal(json.dumps(document)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 column 1: not valid JSON"),
        ("   \n", "not valid JSON"),
        ("null", "file: null is not an object"),
        ("[]", "file: [] is not an object"),
        (DESIGN[:-3], "not valid JSON"),
        (DESIGN + "{}", "line 9 column 1: not valid JSON: Extra data"),
        ("\ufeff" + DESIGN, "not valid JSON"),
        (DESIGN.replace("1000", "NaN"), "file: NaN is not a number that JSON allows"),
        (DESIGN.replace("1000", "-Infinity"), "file: -Infinity is not a number that JSON allows"),
        (DESIGN.replace("1000", "1e999"), "operators[0] 'O1'.rate[0]: inf is not a number"),
        (DESIGN.replace("1000", "9" * 5000), "file: a number of 5000 digits is too large"),
        (DESIGN.replace('"tasks": 2', '"tasks": 2, "tasks": 3'), 'file: duplicate field "tasks" in one object'),
    ],
    ids=range(12),
)
def test_text_that_is_no_topology_is_refused(text: str, message: str) -> None:
    assert message in str(refusal(text))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused_at_any_depth(opening: str) -> None:
    """Around the interpreter's own limit, reading may succeed where showing the value does not."""
    closing = "]" if opening == "[" else "}"
    for depth in (*range(700, 1010), 100_000):
        refusal(DESIGN.replace("1000", opening * depth + "1" + closing * depth))


def test_a_field_that_stands_twice_among_very_many_is_found_soon() -> None:
    fields = ",".join(f'"k{i}":1' for i in range(100_000))
    assert "k99999" in str(refusal('{"measured":{' + fields + ',"k99999":1}}'))


def test_a_file_that_cannot_be_read_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(DESIGN.replace("demo", "Größe").encode("latin-1"))
    (tmp_path / "wrong.json").write_text(DESIGN.replace("1000", "-1"), encoding="utf-8")
    (tmp_path / "empty.json").touch()
    for name, message in {
        "absent.json": "cannot be read: No such file or directory",
        "": "cannot be read: Is a directory",
        "latin.json": "not UTF-8 text (byte 12)",
        "wrong.json": "operators[0] 'O1'.rate[0]: -1.0 is not a number",
        "empty.json": "line 1 column 1: not valid JSON",
    }.items():
        with pytest.raises(TopologyError) as caught:
            load(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
        assert message in str(caught.value)


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_a_text_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(TopologyError, match="not a valid file name"):
        load(path)


def test_a_file_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(TopologyError, match="larger than 256 MiB"):
        load(tmp_path / "huge.json")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="cannot be written: Is a directory"):
        dump(load_example("tree"), tmp_path)


STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 0.5, 1e308, -0.0, 10**400, "", "O1", "full", "merge", "split", "correlated",
    "\ud800", "é" * 200, [], [1], [None], [1, 2, 3, 4], [[1]], {}, {"name": "O1"}, {"O1.1>O3.1": 4},
]  # fmt: skip


def containers(value: Any) -> Iterator[Any]:
    """Every object and list in a document, itself first."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


def mutated_document(document: Any, dice: random.Random) -> str:
    """The document with a few values replaced, swapped, doubled, renamed or taken out."""
    document = copy.deepcopy(document)
    for _ in range(dice.randint(1, 3)):
        place = dice.choice([found for found in containers(document) if found] or [{"x": 1}])
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        one, other = dice.choice(keys), dice.choice(keys)
        match dice.randrange(5):
            case 0:
                place[one] = copy.deepcopy(dice.choice(STRANGE))
            case 1:
                place[one], place[other] = place[other], place[one]
            case 2:
                del place[one]
            case 3 if isinstance(place, list):
                place.append(copy.deepcopy(place[one]))
            case _ if isinstance(place, dict):
                place[dice.choice(["rate", "tasks", "weights", "input", "measured", "extra", other])] = place[one]
    return json.dumps(document, ensure_ascii=dice.random() < 0.5)


def mutated_text(text: str, dice: random.Random) -> str:
    """The text with a few characters changed, put in or taken out, or its end cut off."""
    characters = list(text)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(characters))
        characters[at : at + dice.randint(0, 2)] = dice.choice(
            ['"', "{", "}", "[", "]", ",", ":", "-", "9", "e9", ".", "\\", "\0", "x", ""]
        )
    return "".join(characters[: dice.randrange(len(characters))] if dice.random() < 0.2 else characters)


def outcome(source: str | Path) -> Topology | TopologyError:
    """What reading a text or a file ends in; any other exception is a failure."""
    try:
        return load(source) if isinstance(source, Path) else loads(source)
    except TopologyError as error:
        return error


@pytest.mark.parametrize("name", [*names(), "design"])
def test_fuzzed_files_end_in_a_topology_or_a_topology_error(name: str) -> None:
    text = DESIGN if name == "design" else dumps(load_example(name))
    dice, survived = random.Random(name), 0
    for turn in range(400):
        damaged = mutated_text(text, dice) if turn % 2 else mutated_document(json.loads(text), dice)
        found = outcome(damaged)
        if isinstance(found, Topology):
            survived += 1
            assert loads(dumps(found)) == found
        else:
            assert found.place, damaged
            assert found.reason, damaged
    assert 5 < survived < 300


def test_fuzzed_bytes_end_in_a_topology_or_a_topology_error(tmp_path: Path) -> None:
    dice, path = random.Random(1), tmp_path / "fuzzed.json"
    for _ in range(200):
        raw = bytearray(DESIGN.encode())
        for _ in range(dice.randint(1, 3)):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        path.write_bytes(raw)
        found = outcome(path)
        assert isinstance(found, Topology) or found.place.startswith(str(path))


def test_tasks_can_be_limited_below_what_is_supported() -> None:
    text = '{"operators": [{"name": "A", "tasks": 60, "rate": 1}, {"name": "B", "tasks": 41, "rate": 1}]}'
    assert len(loads(text, 101).tasks) == 101
    with pytest.raises(TopologyError, match="operators: 101 tasks in all; the limit here is 100"):
        loads(text, 100)
    with pytest.raises(TopologyError, match="is not a whole number"):
        loads('{"operators": [{"name": "A", "tasks": "many"}, 7, {"tasks": -5}]}', 100)
