"""Flower's messages as its SuperLink stores them: a tree of objects, each uploaded and downloaded by its digest.

Ours are three: the message, its record dictionary, and in it one record with one value, the bytes of an exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedrouter.errors import BadMessage

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.proto.message_pb2 import ObjectTree

MESSAGE_TYPE = "query.exchange"
"""Flower's category of messages, and the action: questions, or the answers to them."""
RECORD, VALUE = "exchange", "content"
DEPTH = 3
OVERHEAD = 4096
"""Bytes that an object may have besides the content."""


def to_records(content: bytes) -> RecordDict:
    """The bytes of an exchange as the content of a Flower message."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({RECORD: ConfigRecord({VALUE: content})})


def from_records(records: RecordDict) -> bytes:
    """Read what :func:`to_records` wrote; anything else is refused."""
    if set(records) == {RECORD} and RECORD in records.config_records:
        record = records.config_records[RECORD]
        content = record[VALUE] if set(record) == {VALUE} else None
        if isinstance(content, bytes):
            return content
    raise BadMessage("message: expected one record with one value")


def objects_of(message: Message) -> dict[str, bytes]:
    """The objects of a message by their ids, children first; sets the message's id, which is that of its object."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute

    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        return {identifier: each.deflate() for identifier, each in get_all_nested_objects(message).items()}


def tree_of(message: Message) -> ObjectTree:
    """How the objects of a message depend on each other."""
    from flwr.supercore.inflatable.inflatable_object import get_object_tree

    return get_object_tree(message)


def object_ids(tree: ObjectTree) -> list[str]:
    """The ids in a tree that has the shape of our messages; another one is refused before anything is downloaded."""
    found = [tree.object_id]
    while tree.children:
        if len(tree.children) > 1 or len(found) == DEPTH:
            raise BadMessage("message: not made of the expected objects")
        tree = tree.children[0]
        found.append(tree.object_id)
    return found


def message_from(identifier: str, contents: Mapping[str, bytes]) -> Message:
    """A message from its objects."""
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    try:
        message = inflate_object_from_contents(identifier, dict(contents))
    except Exception:
        # Any error of Flower's on bytes that it did not write; its text may quote them.
        raise BadMessage("message: cannot be read") from None
    if not isinstance(message, Message):
        raise BadMessage("message: cannot be read")
    message.metadata.__dict__["_message_id"] = identifier
    return message
