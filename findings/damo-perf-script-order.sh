#!/bin/sh
# damo 3.4.3 (PyPI): `damo convert_record_format --format perf_script` of a record of two targets.
#
# Behaviour that a user would not guess: the output looks like what `perf script` prints of DAMON's events, which is in
# order of time. But damo writes all snapshots of the first target before all of the second, so times go back in the file.
#
# Seen: a record in order of time (5.1 of 0, 5.1 of 1, 5.2 of 0, …) comes out as
# "5.1 of 0, 5.2 of 0, 5.3 of 0, 5.1 of 1, 5.2 of 1, 5.3 of 1,".
# Exit 0: as described; 1: it has changed; 77: the package cannot be installed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
python3 -m venv v && v/bin/pip -q install damo==3.4.3 >/dev/null 2>&1 || exit 77
snapshots() {
    for time in "$@"; do
        for target in 0 1; do
            printf 'kdamond.x xxxx xxxx %s00000: damon:damon_aggregated: target_id=%s nr_regions=1 4096-8192: 3 1\n' \
                "$time" "$target"
        done
    done
}
convert() {
    v/bin/damo convert_record_format --record_file "$1" --format perf_script --output_file "$2" >out 2>&1 || { cat out; exit 1; }
}
snapshots 5.1 5.2 5.3 > two.damo
convert two.damo two.out
times=$(sed 's/.* \([0-9]*\.[0-9]\)[0-9]*: damon.*target_id=\([0-9]*\).*/\1 of \2,/' two.out | tr '\n' ' ')
echo "$times"
[ "$times" = "5.1 of 0, 5.2 of 0, 5.3 of 0, 5.1 of 1, 5.2 of 1, 5.3 of 1, " ]
