#!/bin/sh
# fio 3.33 (Debian 12): `--randseed` without `--randrepeat=0`.
#
# Behaviour that a user would not guess: the manual says that randseed seeds the random numbers, "to be able to control
# what sequence of output is being generated". Alone it changes nothing, because randrepeat is on by default; fio says
# no word. Only with randrepeat=0 blocks change, and then they do with every seed.
#
# Seen: the same 10 blocks without, with 1 and with 77; others with randrepeat=0.
# Exit 0: as described; 1: it has changed; 77: the package cannot be installed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
chmod 755 .
apt-get download fio=3.33-3 >/dev/null 2>&1 && dpkg -x fio_*.deb . || exit 77
usr/bin/fio --version | grep -qx 'fio-3.33' || exit 77
blocks() {
    rm -f log
    usr/bin/fio --name=j --ioengine=null --output=out --rw=randread --size=40k --write_iolog=log "$@" || exit 1
    awk '$3 == "read" { printf "%s ", $4 / 4096 }' log
}
none=$(blocks) one=$(blocks --randseed=1) other=$(blocks --randseed=77)
first=$(blocks --randrepeat=0 --randseed=1) second=$(blocks --randrepeat=0 --randseed=77)
printf 'none: %s\n1: %s\n77: %s\nrandrepeat=0, 1: %s\nrandrepeat=0, 77: %s\n' "$none" "$one" "$other" "$first" "$second"
[ "$none" = "$one" ] && [ "$none" = "$other" ] && [ "$first" != "$none" ] && [ "$second" != "$first" ]
