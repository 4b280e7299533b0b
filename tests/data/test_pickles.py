"""Claims about fedrouter.data.pickles: RouterBench's table reads, and no pickle gets anything executed."""

import builtins
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from fedrouter.data.pickles import read_pickled_frame
from fedrouter.errors import BadInput, MissingExtra

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

FIXTURES = sorted((Path(__file__).parent / "pickles").glob("*.pkl"))
ROWS = range(6)
EXPECTED = {
    "sample_id": [f"made-up.val.{i}" for i in ROWS],
    "prompt": [f"['Question {i}: what is {i} + {i}? Naïve “quotes” and\\na new line.']" for i in ROWS],
    "eval_name": ["made-up-sums"] * 4 + ["made-up-words"] * 2,
    "acme/small-1b": [1.0, 0.0, 0.5, 1.0, 0.0, 0.25],
    "acme/large-9b": [1.0, 1.0, 1.0, 0.0, 0.75, 1.0],
    "acme/small-1b|model_response": [f"['{i}']" for i in ROWS],
    "acme/large-9b|model_response": [f"['the answer is {i + i}']" for i in ROWS[:5]] + [None],
    "acme/small-1b|total_cost": [i * 1e-6 for i in ROWS],
    "acme/large-9b|total_cost": [0.001 + i * 1e-5 for i in ROWS],
    "oracle_model_to_route_to": ["acme/small-1b"] * 3 + ["no_model_correct"] * 3,
}


class Call:
    """Pickles as a call of `function`, followed by BUILD when a state is given."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


def write(path, value, protocol=5):
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


def plain(series):
    """The values with every kind of missing written None."""
    return [None if pd.isna(value) else value for value in series.tolist()]


# Tables that must read


def test_there_are_fixtures_of_three_pandas_versions():
    assert {path.name.split("-")[1] for path in FIXTURES} == {"1.5.3", "2.0.3", "2.2.3"}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_table_saved_by_an_older_pandas_reads_value_for_value(path):
    frame = read_pickled_frame(path)
    kept = [0, 2, 5] if "some-rows" in path.stem else list(ROWS)
    assert frame.index.tolist() == kept
    assert frame.columns.tolist() == list(EXPECTED)
    for name, values in EXPECTED.items():
        assert frame[name].tolist() == [values[i] for i in kept], name
        assert frame[name].dtype == ("float64" if name.endswith("|total_cost") else object), name


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame[::-1],
        lambda frame: frame.set_index("sample_id"),
        lambda frame: frame[frame.columns[::-1]],
        lambda frame: frame.head(0),
        lambda frame: frame[[]],
        lambda frame: pd.concat([frame, frame]),
        lambda frame: frame.assign(count=range(6), right=[True, False] * 3, half=np.arange(6, dtype="f4")),
        lambda frame: frame.assign(scores=pd.Series([np.float64(i) / 2 for i in ROWS], dtype=object)),
        lambda frame: frame.rename_axis(columns="field"),
    ],
    ids=[
        *("same", "reversed", "named-rows", "reordered", "empty"),
        *("columnless", "repeated", "dtypes", "numpy-cells", "named-axis"),
    ],
)
def test_a_frame_saved_by_the_installed_pandas_reads(tmp_path, change, protocol):
    saved = change(pd.DataFrame(EXPECTED))
    saved.to_pickle(tmp_path / "t.pkl", protocol=protocol)
    read = read_pickled_frame(tmp_path / "t.pkl")
    assert read.columns.tolist() == saved.columns.tolist()
    assert read.columns.names == saved.columns.names
    assert read.index.tolist() == saved.index.tolist()
    assert read.index.names == saved.index.names
    for name in saved:
        assert plain(read[name]) == plain(saved[name]), name
        if saved[name].dtype.kind in "biuf":
            assert read[name].dtype == saved[name].dtype, name


def test_what_was_read_can_be_changed(tmp_path):
    frame = read_pickled_frame(FIXTURES[0])
    frame.loc[0, "acme/small-1b|total_cost"] = 7.0
    assert frame["acme/small-1b|total_cost"].max() == 7.0


# Pickles that must be refused, unexecuted


def os_system(canary, protocol):
    return Call(os.system, f"touch '{canary}'")


def builtins_eval(canary, protocol):
    return Call(eval, f"open({str(canary)!r}, 'w').close()")


def builtins_exec(canary, protocol):
    return Call(exec, f"open({str(canary)!r}, 'w').close()")


def builtins_open(canary, protocol):
    return Call(open, str(canary), "w")


class Got(Call):
    """A getattr whose result is called: pickle has no name for it, only the chain."""

    def __call__(self):
        raise AssertionError("only its pickle is called")


def getattr_chain(canary, protocol):
    return Call(Got(getattr, Call(__import__, "os"), "system"), f"touch '{canary}'")


def nested_in_an_object_column(canary, protocol):
    return pd.DataFrame({"prompt": ["fine", os_system(canary, protocol)]}, dtype=object)


def nested_in_the_attributes_of_a_frame(canary, protocol):
    frame = pd.DataFrame(EXPECTED)
    frame.attrs["note"] = os_system(canary, protocol)
    return frame


def numpy_load(canary, protocol):
    inner = canary.with_name("inner.npy")
    np.save(inner, np.array([os_system(canary, protocol)], dtype=object), allow_pickle=True)
    return Call(np.load, str(inner), None, True)


def pandas_read_pickle(canary, protocol):
    return Call(pd.io.pickle.read_pickle, str(write(canary.with_name("inner.pkl"), os_system(canary, 5))))


ATTACKS = [
    os_system,
    builtins_eval,
    builtins_exec,
    builtins_open,
    getattr_chain,
    nested_in_an_object_column,
    nested_in_the_attributes_of_a_frame,
    numpy_load,
    pandas_read_pickle,
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the control leaves its file open
@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_that_works_on_pickle_is_refused_and_does_nothing_here(tmp_path, attack, protocol):
    canary = tmp_path / "canary"
    path = write(tmp_path / "attack.pkl", attack(canary, protocol), protocol)
    with pytest.raises(BadInput, match="refused: the pickle asks for"):
        read_pickled_frame(path)
    assert not canary.exists()
    pickle.loads(path.read_bytes())  # the control: without the reader's refusal the same bytes do it
    assert canary.exists()


def test_the_refusal_names_the_file_the_function_and_the_way_out(tmp_path):
    path = write(tmp_path / "attack.pkl", Call(os.system, "true"))
    with pytest.raises(BadInput) as refusal:
        read_pickled_frame(path)
    assert str(refusal.value) == (
        f"{path}: refused: the pickle asks for {os.system.__module__}.system, which a table of numbers and "
        "text does not need; nothing was executed. Convert it to parquet where you trust it, then read that."
    )


def named(module, name, *args):
    """Protocol 4 bytes that call `module`.`name`, dots and all, with text arguments."""
    texts = [b"\x8c" + bytes([len(text.encode())]) + text.encode() for text in (module, name, *args)]
    return b"\x80\x04" + b"".join(texts[:2]) + b"\x93(" + b"".join(texts[2:]) + b"tR."


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("shutil", "os.system"),
        ("numpy", "ndarray.tofile"),
        ("numpy", "dtype.__class__"),
        ("numpy", "load"),
        ("numpy", "fromfile"),
        ("numpy", "memmap"),
        ("pandas", "eval"),
        ("pandas", "DataFrame.eval"),
        ("pandas.core.frame", "DataFrame.eval"),
        ("pandas.core.frame", "DataFrame.query"),
        ("pandas.core.frame", "DataFrame.to_pickle"),
        ("pandas.core.frame", "DataFrame.__init__.__globals__"),
        ("pandas.io.pickle", "read_pickle"),
        ("pandas.core.indexes.base", "Index.map"),
        ("pandas._libs.internals", "_unpickle_block.__self__"),
        ("builtins", "slice.__class__"),
        ("builtins", "bytearray.__class__.__subclasses__"),
        ("builtins", "getattr"),
        ("builtins", "__import__"),
        ("__builtin__", "eval"),
        ("functools", "partial"),
        ("operator", "attrgetter"),
        ("copyreg", "_reconstructor"),
        ("pickle", "loads"),
        ("fedrouter.data.pickles", "_Unpickler"),
        ("", "system"),
    ],
)
def test_only_exact_names_are_known(tmp_path, module, name):
    canary = tmp_path / "canary"
    (tmp_path / "attack.pkl").write_bytes(named(module, name, f"touch '{canary}'"))
    with pytest.raises(BadInput, match="refused"):
        read_pickled_frame(tmp_path / "attack.pkl")
    assert not canary.exists()


def test_a_dotted_name_would_have_run(tmp_path):
    assert shutil.os is os
    pickle.loads(named("shutil", "os.system", f"touch '{tmp_path / 'canary'}'"))
    assert (tmp_path / "canary").exists()


def test_a_refusal_prints_no_control_characters_from_the_file(tmp_path):
    (tmp_path / "attack.pkl").write_bytes(named("os\x1b[2J\n", "system" * 30))
    with pytest.raises(BadInput) as refusal:
        read_pickled_frame(tmp_path / "attack.pkl")
    assert str(refusal.value).removeprefix(str(tmp_path)).isprintable()
    assert "system" * 30 not in str(refusal.value)


# Allowed names used in ways pandas would not


RECONSTRUCT = np.empty(0).__reduce__()[0]
LYING_DTYPE = Call(np.dtype, "V8", False, True, state=(3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0))


def array(dtype, raw, shape=(1, 1)):
    return Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, shape, dtype, False, raw))


def table(values, position=slice(0, 1, 1), columns=("only",), rows=1):
    """A one-block frame as pandas pickles it, with the parts given in place of honest ones."""
    block = Call(pd._libs.internals._unpickle_block, values, position, 2)
    axes = [pd.Index(list(columns), dtype=object), pd.RangeIndex(rows)]
    manager = Call(pd.core.internals.managers.BlockManager, (block,), axes)
    return Call(pd.DataFrame, state={"_mgr": manager, "_typ": "dataframe", "_metadata": [], "attrs": {}})


def test_the_hand_made_table_is_read_when_its_parts_are_honest(tmp_path):
    path = write(tmp_path / "t.pkl", table(np.array([[2.5]])))
    assert read_pickled_frame(path).to_dict("list") == {"only": [2.5]}


@pytest.mark.parametrize(
    "forged",
    [
        # Either of the first two would make numpy take these bytes for the address of a Python object.
        table(array(LYING_DTYPE, b"AAAAAAAA")),
        table(Call(np.ndarray, (1, 1), "O", b"AAAAAAAA")),
        table(array(np.dtype("O"), b"AAAAAAAA")),
        table(array(np.dtype("f8"), [1.0])),
        table(array(np.dtype("f8"), b"\0" * 7)),
        table(array(np.dtype("f8"), b"\0" * 8, shape=(1, 10**15))),
        table(array(np.dtype("M8[ns]"), b"\0" * 8)),
        table(array(np.dtype("O"), [["a list"]])),
        table(array(np.dtype("O"), [Call(pd.DataFrame)])),
        table(array(np.dtype("O"), [np.dtype("f8")])),
        table(np.array([[2.5]]), position=slice(1, 10**15, 1)),
        table(np.array([[2.5]]), position=slice("a", "b")),
        table(np.array([[2.5]]), position=np.array([-1])),
        table(np.array([[2.5]]), columns=("two", "names")),
        table(np.array([[2.5]]), rows=10**15),
        Call(pd.DataFrame),
        Call(pd.DataFrame, state={"_mgr": "text"}),
    ],
)
def test_parts_that_do_not_make_a_table_are_refused_without_harm(tmp_path, forged):
    path = write(tmp_path / "t.pkl", forged)
    with pytest.raises(BadInput, match="expected a DataFrame of numbers and text"):
        read_pickled_frame(path)


@pytest.mark.parametrize("name", [b"pandas\nIndex", b"pandas\nDataFrame", b"numpy\ndtype", b"builtins\nslice"])
def test_a_pickle_cannot_set_attributes_of_a_class_it_names(tmp_path, name):
    from fedrouter.data import pickles

    set_args = b"(N}X\x04\x00\x00\x00argsK\x01stb."
    (tmp_path / "t.pkl").write_bytes(b"\x80\x04c" + name + b"\n" + set_args)
    before = {kind: dict(vars(made)) for kind, made in pickles.PLACEHOLDERS.items()}
    with pytest.raises(BadInput):
        read_pickled_frame(tmp_path / "t.pkl")
    assert {kind: dict(vars(made)) for kind, made in pickles.PLACEHOLDERS.items()} == before


# Files that are not such a pickle


def test_a_file_cut_off_anywhere_is_called_incomplete(tmp_path):
    path = tmp_path / "cut.pkl"
    for whole in (fixture.read_bytes() for fixture in FIXTURES if fixture.stem.startswith("pandas-2.2.3")):
        for length in range(1, len(whole), 7):
            path.write_bytes(whole[:length])
            with pytest.raises(BadInput, match=r"cut\.pkl: not a complete pickle: "):
                read_pickled_frame(path)


@pytest.mark.parametrize("content", [b"", b"sample_id,prompt\n1,a\n", b"\x1f\x8b\x08\x00", b"PAR1", b"\x80\x05."])
def test_a_file_that_is_no_pickle_is_called_so(tmp_path, content):
    (tmp_path / "t.pkl").write_bytes(content)
    with pytest.raises(BadInput, match=r"t\.pkl: not a complete pickle: ."):
        read_pickled_frame(tmp_path / "t.pkl")


@pytest.mark.parametrize("value", [{"a": 1}, [1.0], "text", None, np.dtype("f8")], ids=repr)
def test_a_pickle_of_something_else_is_refused(tmp_path, value):
    with pytest.raises(BadInput, match=r"t\.pkl: expected a pickled pandas DataFrame, found: "):
        read_pickled_frame(write(tmp_path / "t.pkl", value))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"nowhere\.pkl: cannot be read: "):
        read_pickled_frame(tmp_path / "nowhere.pkl")


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"Reading a pickle needs the \[pickle\] extra"):
        read_pickled_frame(FIXTURES[0])


def test_importing_the_reader_imports_no_pandas():
    check = "import sys, fedrouter.data.pickles; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_reading_leaves_pickle_itself_alone():
    read_pickled_frame(FIXTURES[0])
    assert pickle.loads(pickle.dumps(builtins.len)) is len


# Small files that ask for much memory


def sized(opcode, size, length_bytes):
    return opcode + size.to_bytes(length_bytes, "little")


MUCH = 1 << 24
HUNGRY = {
    "memo index": b"\x80\x02N" + sized(pickle.LONG_BINPUT, MUCH, 4) + b".",
    "memo index as text": b"Np%d\n." % MUCH,
    "frame": b"\x80\x04" + sized(pickle.FRAME, MUCH, 8) + b"N.",
    "bytes": b"\x80\x04" + sized(pickle.BINBYTES, MUCH, 4) + b".",
    "long bytes": b"\x80\x04" + sized(pickle.BINBYTES8, MUCH, 8) + b".",
    "bytearray": b"\x80\x05" + sized(pickle.BYTEARRAY8, MUCH, 8) + b".",
    "text": b"\x80\x04" + sized(pickle.BINUNICODE, MUCH, 4) + b".",
    "long text": b"\x80\x04" + sized(pickle.BINUNICODE8, MUCH, 8) + b".",
    "string": b"\x80\x02" + sized(pickle.BINSTRING, MUCH, 4) + b".",
    "integer": b"\x80\x02" + sized(pickle.LONG4, MUCH, 4) + b".",
}


def peak(read, *arguments):
    """Most bytes that were allocated at one time while this was refused."""
    tracemalloc.start()
    try:
        with pytest.raises(BadInput):
            read(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", HUNGRY.values(), ids=HUNGRY)
def test_what_a_few_bytes_ask_for_is_not_allocated(tmp_path, content):
    assert len(content) < 20
    (tmp_path / "t.pkl").write_bytes(content)
    read_pickled_frame(FIXTURES[0])  # imports pandas
    assert peak(read_pickled_frame, tmp_path / "t.pkl") < 200_000
    with pytest.raises(BadInput, match=r"t\.pkl: not a complete pickle: .* asks for more than there is"):
        read_pickled_frame(tmp_path / "t.pkl")


def test_columns_that_are_only_counted_are_not_counted_out(tmp_path):
    axes = [pd.RangeIndex(1 << 20), pd.RangeIndex(0)]
    manager = Call(pd.core.internals.managers.BlockManager, (), axes)
    path = write(tmp_path / "t.pkl", Call(pd.DataFrame, state={"_mgr": manager}))
    assert peak(read_pickled_frame, path) < 200_000
    with pytest.raises(BadInput, match="columns without names"):
        read_pickled_frame(path)


def test_a_refusal_does_not_spell_out_what_is_nested(tmp_path):
    nested = "text"
    for _ in range(22):  # four million times the text, if it were written out
        nested = [nested, nested]
    forged = table(array(Call(np.dtype, "f8", False, True, state=(3, nested)), b"\0" * 8))
    assert peak(read_pickled_frame, write(tmp_path / "t.pkl", forged)) < 200_000


TWICE = b")" + b"2\x86" * 60  # a tuple of the same tuple twice, sixty times over


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04}" + TWICE + b"Ns.",
        b"\x80\x04}(" + TWICE + b"Nu.",
        b"\x80\x04(" + TWICE + b"Nd.",
        b"\x80\x04}X\x01\x00\x00\x00k\x940" + TWICE + b"q\x000h\x00Ns.",  # the index of a text, then of a tuple
        b"\x80\x04}(K\x01Nu.",
        b"\x80\x04\x8f(" + TWICE + b"\x90.",
        b"\x80\x04(" + TWICE + b"\x91.",
    ],
)
def test_what_would_take_for_ever_to_hash_is_refused(tmp_path, content):
    (tmp_path / "t.pkl").write_bytes(content)
    with pytest.raises(BadInput, match=r"a key that is no text|a set, which no table has"):
        read_pickled_frame(tmp_path / "t.pkl")


def test_one_array_named_as_many_columns_is_refused(tmp_path):
    raw, columns = b"\0" * 80_000, 200
    blocks = [
        Call(pd._libs.internals._unpickle_block, array(np.dtype("f8"), raw, (1, 10_000)), slice(spot, spot + 1, 1), 2)
        for spot in range(columns)
    ]
    axes = [pd.Index([f"c{spot}" for spot in range(columns)], dtype=object), pd.RangeIndex(10_000)]
    manager = Call(pd.core.internals.managers.BlockManager, tuple(blocks), axes)
    path = write(tmp_path / "t.pkl", Call(pd.DataFrame, state={"_mgr": manager}))
    assert path.stat().st_size < 150_000  # sixteen megabytes, if they were all made
    with pytest.raises(BadInput, match="more cells than bytes"):
        read_pickled_frame(path)
