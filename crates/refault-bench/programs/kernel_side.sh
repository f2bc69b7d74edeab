# Makes a memory cgroup and zram to swap to, keeps both until its standard input ends, and removes them then, whatever
# becomes of who started it. Arguments: the cgroup's directory, the name of its file of the limit, the limit in bytes,
# and the size of the zram device, 0 for none. Prints "ready" and the number of the device, or "none"; or "failed" and
# at what.
trap '' INT TERM HUP PIPE
dir=$1 limit=$2 value=$3 size=$4 id=
clean() {
  n=0
  while [ -d "$dir" ] && [ $n -lt 100 ]; do
    kill -9 $(cat "$dir/cgroup.procs" "$dir"/*/cgroup.procs 2>/dev/null) 2>/dev/null
    rmdir "$dir"/*/ 2>/dev/null
    rmdir "$dir" 2>/dev/null || sleep 0.1
    n=$((n+1))
  done
  if [ -n "$id" ]; then
    swapoff /dev/zram$id 2>/dev/null
    echo 1 > /sys/block/zram$id/reset
    echo $id > /sys/class/zram-control/hot_remove
  fi
}
fail() { echo "failed $1"; clean; exit 1; }
if [ $size -gt 0 ]; then
  id=$(cat /sys/class/zram-control/hot_add) || fail "adding a zram device"
  echo lz4 > /sys/block/zram$id/comp_algorithm || fail "choosing lz4 for zram"
  echo $size > /sys/block/zram$id/disksize || fail "sizing the zram device"
  mkswap /dev/zram$id >/dev/null 2>&1 || fail "mkswap"
  swapon -p 32000 /dev/zram$id || fail "swapon"
fi
mkdir "$dir" || fail "making the cgroup"
echo $value > "$dir/$limit" || fail "limiting the cgroup"
echo "ready ${id:-none}"
read nothing
clean
