"""Traces in Parquet, in Arrow's two forms and in data frames: the same accesses from each, and what is refused."""

import numpy as np
import pytest
import refault

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = 5000
LBN = np.random.default_rng(3).zipf(1.4, ROWS).clip(max=400)
TABLE = pyarrow.table(
    {
        "ts": np.arange(ROWS) // 3,
        "op": pyarrow.array(["Write" if n % 4 == 0 else "R" for n in range(ROWS)]).dictionary_encode(),
        "lbn": LBN,
        "key": [f"object {n}" for n in LBN],
    }
)


def written(form, path):
    if form == "parquet":
        parquet.write_table(TABLE, path, row_group_size=700)
    else:
        opened = {"arrow": pyarrow.ipc.new_file, "stream": pyarrow.ipc.new_stream}[form]
        with opened(path, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=700)
    return path


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream", "pandas", "polars", "uri"])
def test_named_columns_are_read(form, tmp_path):
    if form in ("pandas", "polars"):
        frames = pytest.importorskip(form)
        source = TABLE.to_pandas() if form == "pandas" else frames.from_arrow(TABLE)
    else:
        # Contents say the form: the name does not.
        source = str(written("parquet" if form == "uri" else form, str(tmp_path / "trace.data")))
        source = f"file://{source}" if form == "uri" else source
    trace = refault.Trace.from_table(source, page="lbn", write="op", time="ts", kind="fd")
    assert (trace.pages() == LBN).all()
    assert trace.to_arrays()["writes"].tolist() == [n % 4 == 0 for n in range(ROWS)]
    # Texts are numbered as they come.
    objects = refault.Trace.from_table(source, page="key", kind="fd")
    first = {name: number for number, name in enumerate(dict.fromkeys(LBN.tolist()))}
    assert objects.pages().tolist() == [first[number] for number in LBN.tolist()]


def test_what_is_not_understood_is_refused_with_a_way_out(tmp_path):
    def table(**columns):
        return pyarrow.table(columns)

    refusals = [
        (TABLE, {"page": "lba"}, "no column 'lba': choose from ts, op, lbn, key"),
        (table(page=[1, None, 2]), {"page": "page"}, "empty in 1 of 3 rows"),
        (table(page=[1, -2]), {"page": "page"}, "below 0"),
        (table(page=[1.5, 2.0]), {"page": "page"}, "pages are integers"),
        (table(page=[1, 2], op=["R", "erase"]), {"page": "page", "write": "op"}, "'erase': say true or false"),
        (table(page=[1, 2, 3], ts=[5, 4, 6]), {"page": "page", "time": "ts"}, "go back in 1 rows: sort the table by 'ts'"),
    ]
    for source, columns, message in refusals:
        with pytest.raises(ValueError, match=message):
            refault.Trace.from_table(source, **columns)
    text = tmp_path / "trace.csv"
    text.write_text("page\n1\n")
    with pytest.raises(ValueError, match="neither Parquet nor Arrow"):
        refault.Trace.from_table(text, page="page")
    written("parquet", str(tmp_path / "trace.parquet"))
    with pytest.raises(ValueError, match="no column 'lba'"):
        refault.Trace.from_table(tmp_path / "trace.parquet", page="lba")


def csv_of(table, path):
    """The same rows as they would be written by hand."""
    rows = [",".join(table.column_names)]
    rows += [",".join(str(value) for value in row.values()) for row in table.to_pylist()]
    path.write_text("\n".join(rows) + "\n")
    return path


NUMBERS = np.random.default_rng(5)
SIZED = pyarrow.table(
    {
        "at": np.arange(800) * 7,
        "what": [f"object {n}" for n in NUMBERS.zipf(1.3, 800).clip(max=60)],
        "bytes_long": NUMBERS.integers(1, 40_000, 800),
        "op": [("get", "set", "delete")[n % 3] for n in range(800)],
        "ttl": [60] * 800,
    }
)
TOLD = {"object": "what", "size": "bytes_long", "time_us": "at"}


@pytest.mark.filterwarnings("ignore::refault.TraceWarning")
@pytest.mark.parametrize("form", ["parquet", "arrow", "stream", "frame"])
def test_columns_mean_what_they_mean_in_csv(form, tmp_path):
    source = SIZED
    if form == "parquet":
        source = tmp_path / "sized.parquet"
        parquet.write_table(SIZED, source, row_group_size=90)
    elif form != "frame":
        source = tmp_path / "sized.data"
        opened = {"arrow": pyarrow.ipc.new_file, "stream": pyarrow.ipc.new_stream}[form]
        with opened(source, SIZED.schema) as writer:
            writer.write_table(SIZED, max_chunksize=90)
    trace = refault.Trace.from_table(source, columns=TOLD)
    expected = refault.Trace(csv_of(SIZED, tmp_path / "sized.csv"), columns=TOLD)
    assert trace.counts() == expected.counts()
    assert trace.pages().tolist() == expected.pages().tolist()
    assert [remark for remark in trace.remarks() if "ttl" in remark or "live" in remark]
    ours, theirs = (refault.compare(one, policies=["lru"], memory=["20%"]).rows[0] for one in (trace, expected))
    assert ours["misses"] == theirs["misses"]
    one_each = refault.Trace.from_table(source, columns=TOLD, objects_have_sizes=False)
    accessed = {row["what"] for row in SIZED.to_pylist() if row["op"] != "delete"}
    assert one_each.counts()["distinct_pages"] == len(accessed)


def test_names_and_types_say_what_columns_are(tmp_path):
    """Usual names need no telling, times know their units, and a boolean tells writes."""
    stamps = pyarrow.array([1_000_000, 2_000_000, 3_000_000], pyarrow.timestamp("us"))
    table = pyarrow.table({"timestamp": stamps, "offset": [0, 8192, 4096], "size": [8192, 1, 1], "write": [True, False, False]})
    trace = refault.Trace.from_table(table, strict=True)
    assert trace.pages().tolist() == [0, 1, 2, 1]
    assert trace.to_arrays()["writes"].tolist() == [True, True, False, False]
    parquet.write_table(table, tmp_path / "disk.parquet")
    assert refault.Trace.from_table(tmp_path / "disk.parquet").pages().tolist() == [0, 1, 2, 1]
    # Texts that no line can hold are objects all the same, and nothing is mixed up.
    texts = pyarrow.table({"key": ["a\nb", 'say "a", b', "a\nb", "a"]})
    assert refault.Trace.from_table(texts).counts()["distinct_pages"] == 3
    raw = pyarrow.table({"key": pyarrow.array([b"\xff\x00", b"\xff", b"\xff\x00"])})
    assert refault.Trace.from_table(raw).counts()["distinct_pages"] == 2


def test_what_is_asked_for_wrongly_is_told_by_name():
    table = pyarrow.table({"key": ["a", "b"], "size": [1, None], "deep": [[1], [2]]})
    refusals = [
        ({"page": "key", "columns": {"size": "size"}}, "columns: only without page"),
        ({"page": "key", "strict": True}, "strict: only without page"),
        ({"write": "op"}, "belong to page"),
        ({"columns": {"object": "name"}}, "no column 'name': choose from key, size, deep"),
        ({"columns": {"object": "key", "size": "deep"}, "name": "mine", "strict": True}, "mine"),
    ]
    for arguments, message in refusals:
        with pytest.raises(ValueError, match=message):
            refault.Trace.from_table(table, **arguments)
