"""Flower's messages as objects: ours have one shape, and any other is refused before it is downloaded or read."""

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.proto.message_pb2 import ObjectTree

from fedrouter.engines.flower.objects import (
    MESSAGE_TYPE,
    from_records,
    message_from,
    object_ids,
    objects_of,
    to_records,
    tree_of,
)
from fedrouter.errors import BadMessage


def message(records):
    return make_message(Metadata(1, "", 1, 2, "", "", 0.0, 60.0, MESSAGE_TYPE), records)


def test_content_survives_the_objects():
    sent = message(to_records(b"\x00content\xff"))
    objects = objects_of(sent)
    assert sorted(objects) == sorted(object_ids(tree_of(sent)))
    assert len(objects) == 3
    back = message_from(sent.metadata.message_id, objects)
    assert from_records(back.content) == b"\x00content\xff"
    assert back.metadata.dst_node_id == 2


@pytest.mark.parametrize(
    "records",
    [
        RecordDict(),
        RecordDict({"other": ConfigRecord({"content": b"1"})}),
        RecordDict({"exchange": ConfigRecord({"content": "text"})}),
        RecordDict({"exchange": ConfigRecord({"content": b"1", "more": b"2"})}),
        RecordDict({"exchange": ConfigRecord({"content": b"1"}), "more": ConfigRecord()}),
        RecordDict({"exchange": ArrayRecord({"content": Array("object", (1,), "numpy.ndarray", b"\x80")})}),
    ],
)
def test_other_records_are_refused(records):
    with pytest.raises(BadMessage, match="one record with one value"):
        from_records(records)


def chain(depth):
    tree = ObjectTree(object_id="0")
    for number in range(1, depth):
        tree = ObjectTree(object_id=str(number), children=[tree])
    return tree


@pytest.mark.parametrize("tree", [chain(4), ObjectTree(object_id="a", children=[chain(1), chain(1)])])
def test_a_message_of_other_objects_is_refused_by_its_tree(tree):
    with pytest.raises(BadMessage, match="not made of the expected objects"):
        object_ids(tree)


def test_objects_that_are_not_what_they_say_are_refused():
    sent = message(to_records(b"content"))
    objects = objects_of(sent)
    identifier = sent.metadata.message_id
    first = next(iter(objects))
    for broken in (
        {},
        {identifier: objects[identifier]},
        {**objects, first: b"rubbish"},
        {**objects, identifier: objects[first]},
    ):
        with pytest.raises(BadMessage, match="cannot be read"):
            message_from(identifier, broken)
