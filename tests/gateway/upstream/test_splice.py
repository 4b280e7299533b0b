"""Splicing: whatever JSON object comes in, only model and fedrouter change."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.gateway.upstream.bodies import SplicedBody

NAMES = st.sampled_from(["model", "fedrouter", "messages", "a", 'q"uote', "ü", "back\\slash", "{", "]", ":"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(), inner, max_size=3),
    max_leaves=8,
)
SPACE = st.sampled_from(["", " ", "\n", "\t \r\n"])


@st.composite
def bodies(draw):
    """Pairs in any order, names twice or not, and any white space between them."""
    pairs = draw(st.lists(st.tuples(NAMES, VALUES), max_size=6))
    pairs.insert(draw(st.integers(0, len(pairs))), ("model", draw(st.text())))
    ascii_only, space = draw(st.booleans()), lambda: draw(SPACE)
    written = [[json.dumps(part, ensure_ascii=ascii_only) for part in pair] for pair in pairs]
    parts = [f"{space()}{name}{space()}:{space()}{value}{space()}" for name, value in written]
    raw = f"{space()}{{{','.join(parts)}}}{space()}"
    return raw.encode(errors="surrogatepass"), pairs


@settings(max_examples=60, deadline=None)
@given(bodies())
def test_only_model_and_fedrouter_change(drawn):
    raw, pairs = drawn
    spliced = SplicedBody(raw).to("other/ü")
    assert SplicedBody(raw, has_model=True).to("other/ü") == spliced
    wanted = [(name, "other/ü" if name == "model" else value) for name, value in pairs if name != "fedrouter"]
    assert json.loads(spliced, object_pairs_hook=list) == json.loads(
        "{" + ",".join(f"{json.dumps(n)}:{json.dumps(v)}" for n, v in wanted) + "}", object_pairs_hook=list
    )


def test_every_other_byte_stays():
    raw = b'{"a": 1.50e+3 ,"fedrouter":{"x":[1,"}"]} , "model":  "auto"  ,\n"b":"\\u00e9" }'
    assert SplicedBody(raw).to("m") == b'{"a": 1.50e+3 ,"model":  "m"  ,\n"b":"\\u00e9" }'
    assert SplicedBody(b'{"model":"x","fedrouter":{}}').to("m") == b'{"model":"m"}'
    assert SplicedBody(b'{"fedrouter":{},"fedrouter":1,"model":"x"}').to("m") == b'{"model":"m"}'
    assert SplicedBody(b'{"model":"x", "fedrouter":{},"fedrouter":1}').to("m") == b'{"model":"m"}'


def test_a_second_model_is_found_however_it_is_spelled():
    for second in (b'"model"', b'"\\u006dodel"'):
        spliced = SplicedBody(b'{"model":"auto",' + second + b':"expensive"}', has_model=True).to("m")
        assert json.loads(spliced, object_pairs_hook=list) == [("model", "m"), ("model", "m")]
    text = b'{"messages":[{"role":"user","content":"\\"model\\": \\"x\\""}],"model":"auto"}'
    assert SplicedBody(text, has_model=True).to("m") == text.replace(b'"auto"', b'"m"')


def test_options_nested_deeper_than_can_be_written_again_stay_as_they_are():
    deep = b'{"a":' * 1000 + b"1" + b"}" * 1000
    body = b'{"model":"auto","stream":true,"stream_options":' + deep + b"}"
    assert SplicedBody(body).to("auto", with_usage=True) == body
