#!/bin/sh
# Runs a command in a file system made of the directory $2/lower, in mounts of its own, which end with it. $1 says which:
# overlay; full, an overlay whose upper layer has no room; readonly, the same directory mounted read-only. It prints what the
# command prints, and then the files that were copied up. Status 77: nothing can be mounted.
[ "$3" = mounted ] || {
    kind=$1 home=$2
    shift 2
    exec unshare --mount "$0" "$kind" "$home" mounted "$@"
}
kind=$1 home=$2
shift 3
mkdir -p "$home/above" "$home/merged" || exit 1
[ "$kind" != full ] || mount -t tmpfs -o size=64k tmpfs "$home/above" || exit 77
mkdir -p "$home/above/upper" "$home/above/work" || exit 1
if [ "$kind" = readonly ]; then
    mount --bind "$home/lower" "$home/merged" && mount -o remount,bind,ro "$home/merged" || exit 77
else
    layers="lowerdir=$home/lower,upperdir=$home/above/upper,workdir=$home/above/work"
    mount -t overlay overlay -o "$layers" "$home/merged" || exit 77
fi
cd "$home/merged" && "$@" || exit 1
cd "$home/above/upper" && find . -type f -exec echo copied up: {} +
