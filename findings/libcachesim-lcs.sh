#!/bin/sh
# libcachesim 0.3.5 (PyPI): Util.convert_to_lcs of the package's own TraceReader.
#
# Behaviour that a user would not guess:
# 1. The function refuses the TraceReader that every other part of the package takes; it wants its `_reader`.
# 2. Records of size 0 are left out of the converted trace without a word, so that it has fewer requests.
# 3. The next access of an object's last request is written as 2^63-1; the sources and oracleGeneral say -1 for "none".
#
# Seen: "TypeError: convert_to_lcs(): incompatible function arguments", 2 records of 4, next access 9223372036854775807.
# Exit 0: as described; 1: it has changed; 77: the package cannot be installed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
python3 -m venv v && v/bin/pip -q install libcachesim==0.3.5 >/dev/null 2>&1 || exit 77
cat > convert.py <<'P'
import struct
import sys

from libcachesim import ReaderInitParam, TraceReader, TraceType, Util

with open("t.csv", "w") as f:
    f.write("1,7,100\n2,8,0\n3,8,0\n4,7,100\n")
params = ReaderInitParam(has_header=False, delimiter=",", obj_id_is_num=True)
params.time_field, params.obj_id_field, params.obj_size_field = 1, 2, 3
reader = TraceReader(trace="t.csv", trace_type=TraceType.CSV_TRACE, reader_init_params=params)
try:
    Util.convert_to_lcs(reader, "t.lcs")
    sys.exit("convert_to_lcs takes a TraceReader now")
except TypeError as error:
    print("TypeError:", str(error).split(".")[0])
Util.convert_to_lcs(reader._reader, "t.lcs")
records = open("t.lcs", "rb").read()[8192:]
rows = [struct.unpack_from("<IQIq", records, at) for at in range(0, len(records), 24)]
print(len(rows), "records of 4:", rows)
if len(rows) != 2 or rows[-1][3] != 2**63 - 1:
    sys.exit("the records have changed")
P
v/bin/python convert.py 2>&1 | grep -a -v 'INFO'
v/bin/python convert.py >/dev/null 2>&1 || exit 1
