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
