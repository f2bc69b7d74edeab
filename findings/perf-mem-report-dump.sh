#!/bin/sh
# perf 6.1 (Debian's linux-perf): `perf mem report -D`, the dump of samples with their data addresses.
#
# Behaviour that a user would not guess: the address of the first sample is another number than that of the same sample
# in `perf script` or in `perf mem report -D -x ,`. The format that is used before the separator is known says `0x016%`
# where `0x%016` is meant, so that 0x55faaff5c424 becomes 0x01655faaff5c424. All later lines are right.
#
# Seen: "first 0x016..., second 0x7f..." with -D; no address begins with 0x016 with -D -x ,
# Exit 0: as described; 1: it has changed; 77: perf is not there, or may not record page faults.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
command -v perf >/dev/null || exit 77
perf record -q -e page-faults -c 1 -d -o p.data sh -c : >/dev/null 2>&1 || exit 77
addresses() {
    perf mem report -D -i p.data "$@" 2>/dev/null | grep -v '^#' | tr ',' ' ' | awk '{ print $4 }'
}
first=$(addresses | sed -n 1p)
second=$(addresses | sed -n 2p)
[ -n "$second" ] || exit 77
echo "first $first, second $second; with -x ,: $(addresses -x , | sed -n 1p)"
case $first in 0x016*) ;; *) exit 1 ;; esac
[ "$(addresses | grep -c '^0x016')" = 1 ] && [ "$(addresses -x , | grep -c '^0x016')" = 0 ]
