# Values filled in, a snapshot by a forked child while clients read, a digest of all.
set -e
home=$(mktemp -d)
redis-server --port 0 --unixsocket "$home/s" --dir "$home" --save '' --enable-debug-command yes >/dev/null &
server=$!
ask() { redis-cli -s "$home/s" "$@"; }
for _ in $(seq 100); do ask ping >/dev/null 2>&1 && break; sleep 0.1; done
ask debug populate 80000 key 300 >/dev/null
ask bgsave >/dev/null
redis-benchmark -s "$home/s" -n 30000 -r 80000 -P 8 -q get key:__rand_int__ >/dev/null 2>&1
while ask info persistence | grep -q rdb_bgsave_in_progress:1; do sleep 0.1; done
ask info persistence | grep -o 'rdb_last_bgsave_status:ok'
ask dbsize
ask debug digest
ask shutdown nosave
wait $server || true
rm -rf "$home"
