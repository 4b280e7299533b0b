"""An exchange as bytes: what is written is read back exactly, and nothing else is accepted."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fedrouter.engines.flower.encoding import KINDS, LENGTH_BYTES, Part, decode, encode
from fedrouter.errors import BadMessage

ARRAYS = arrays_of.arrays(st.sampled_from(sorted(KINDS)), arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0))
PACKED = st.tuples(st.dictionaries(st.text(max_size=9), ARRAYS, max_size=3), st.text(max_size=30))
PARTS = st.lists(
    st.one_of(
        st.builds(Part, st.text(max_size=9), PACKED),
        st.builds(Part, st.text(max_size=9), st.none(), st.text(max_size=9)),
    ),
    max_size=4,
)


@given(PARTS)
def test_messages_survive_to_the_bit(parts):
    back = decode(encode(parts))
    assert [(part.verb, part.error) for part in back] == [(part.verb, part.error) for part in parts]
    for part, again in zip(parts, back, strict=True):
        if part.packed is None:
            assert again.packed is None
            continue
        assert again.packed[1] == part.packed[1]
        assert list(again.packed[0]) == list(part.packed[0])
        for name, array in part.packed[0].items():
            found = again.packed[0][name]
            assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
            assert found.flags.writeable


def test_arrays_in_another_order_of_memory_or_bytes_are_the_same_numbers():
    fortran, big = np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">i8")
    (part,) = decode(encode([Part("v", ({"a": fortran, "b": big}, "{}"))]))
    assert (part.packed[0]["a"] == fortran).all()
    assert (part.packed[0]["b"] == big).all()


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.array(["text"]), np.array([1 + 2j]), np.array(["2020"], "M8")]
)
def test_only_numbers_travel(array):
    with pytest.raises(BadMessage, match=r"v: a is an array of .*, which cannot travel"):
        encode([Part("v", ({"a": array}, "{}"))])


def written(entries, values=b""):
    header = json.dumps(entries).encode()
    return len(header).to_bytes(LENGTH_BYTES, "little") + header + values


def array(kind="<i8", shape=(1,)):
    return {"verb": "v", "scalars": "{}", "arrays": [["a", kind, shape]]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 40,
        (2**63).to_bytes(8, "little"),
        written("no list"),
        written([1]),
        written([{"verb": 1, "error": "e"}]),
        written([{"verb": "v", "error": ["e"]}]),
        written([{"verb": "v", "scalars": "{}"}]),
        written([{"verb": "v", "scalars": 1, "arrays": []}]),
        written([{"verb": "v", "scalars": "{}", "arrays": [["a"]]}]),
        written([{"verb": "v", "scalars": "{}", "arrays": [[1, "<i8", [1]]]}], b"12345678"),
        written([array("|O")], b"12345678"),
        written([array("<U2")], b"12345678"),
        written([array(shape=[-1])], b"12345678"),
        written([array(shape=[True])], b"12345678"),
        written([array(shape=[2**62])], b"12345678"),
        written([array(shape="1")], b"12345678"),
        written([array()], b"1234567"),
        written([array()], b"123456789"),
        written(json.loads("[" * 900 + "]" * 900)),
    ],
)
def test_anything_else_is_refused_without_quoting_it(content):
    with pytest.raises(BadMessage, match=r"^message: cannot be read$"):
        decode(content)
