#!/usr/bin/env bash
# Makes a tarball and a Debian package of refault.
#
#   scripts/package.sh                          builds, and writes both to target/package
#   scripts/package.sh --from target/release --out /tmp      of what is built there already
#
# The tarball unpacks to one directory with bin, lib and share; bin/refault runs from wherever that lies.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$top/target}
out=$target/package from=
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?--out needs a directory}; shift 2 ;;
        --from) from=${2:?--from needs a directory}; shift 2 ;;
        *) sed -n 's/^# \{0,1\}//;2,7p' "$0" >&2; exit 2 ;;
    esac
done
if [ -z "$from" ]; then
    cargo build --release --manifest-path "$top/Cargo.toml" -p refault-cli
    from=$target/release
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$top/Cargo.toml")
machine=$(uname -m)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"

name=refault-$version-$machine-linux
"$top/scripts/install.sh" --from "$from" --prefix "/$name" --destdir "$scratch"
tar -C "$scratch" --owner=0 --group=0 --numeric-owner -czf "$out/$name.tar.gz" "$name"
echo "$out/$name.tar.gz"

if ! command -v dpkg-deb > /dev/null; then
    echo "no .deb: dpkg-deb is not installed" >&2
    exit
fi
case $machine in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) architecture=$machine ;;
esac
root=$scratch/deb
"$top/scripts/install.sh" --from "$from" --prefix /usr --destdir "$root"
# The newest symbols of glibc that the files use are what they need.
glibc=$(cat "$root"/usr/bin/refault "$root"/usr/lib/refault/*.so | grep -aoE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1)
mkdir "$root/DEBIAN"
cat > "$root/DEBIAN/control" <<CONTROL
Package: refault
Version: $version
Section: utils
Priority: optional
Architecture: $architecture
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Maintainer: the refault developers <refault@localhost>
Description: page reclaim: run programs in less memory, simulate policies
 Runs unmodified programs in less memory than they ask for, finds out how much
 they need, and compares the page reclaim policies of kernels and textbooks on
 recorded and generated traces.
CONTROL
package=refault_${version}_$architecture.deb
dpkg-deb -Zgzip --root-owner-group --build "$root" "$out/$package" > /dev/null
echo "$out/$package"
