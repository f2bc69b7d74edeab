#!/bin/sh
# fio 3.33 (Debian 12): `--random_distribution=zipf:0.5` and the threads of `--numjobs`.
#
# Behaviour that a user would not guess:
# 1. The sequence of blocks depends on the file's name, so that a renamed file or another folder is another load.
# 2. Ranks are hashed onto blocks and collide: of 6,144 blocks a sixth is never asked for.
# 3. `random` begins each pass over a file with the same seed: all passes ask for the blocks in the same order, a loop.
# 4. `normal` over two blocks never ends.
#
# Seen: other blocks for files x and y; 5050 of 6144 blocks in 60,000 reads, where 6,143 would be of Zipf's law without
# collisions; two equal passes; no end within 10 s.
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
    usr/bin/fio --name=refault --ioengine=null --output=out --rw=randread --write_iolog=log "$@" || exit 1
    awk '$3 == "read" { print $4 / 4096 }' log
}
law=--random_distribution=zipf:0.5
blocks $law --size=24m --filename=x >x.blocks
blocks $law --size=24m --filename=x >again.blocks
blocks $law --size=24m --filename=y >y.blocks
cmp -s x.blocks again.blocks || { echo "one name, two sequences"; exit 1; }
cmp -s x.blocks y.blocks && { echo "the name no longer matters"; exit 1; }
touched=$(blocks $law --size=24m --io_size=240000k | sort -un | wc -l)
echo "$touched of 6144 blocks in 60,000 reads"
[ "$touched" = 5050 ] || exit 1
blocks --size=4m --loops=2 >passes
head -n 1024 passes >first
tail -n 1024 passes | cmp -s first - || { echo "passes differ"; exit 1; }
# The process in which fio hangs does not end on SIGTERM; it is the only one of its session.
setsid usr/bin/fio --name=j --ioengine=null --output=out --rw=randread --size=8k --random_distribution=normal:50 --thread &
hanging=$!
for second in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$hanging" 2>/dev/null || { echo "normal over two blocks ended after $second s"; exit 1; }
    sleep 1
done
kill -KILL -- "-$hanging" 2>/dev/null || kill -KILL "$hanging"
echo "normal over two blocks has not ended within 10 s"
