#!/usr/bin/env bash
# Installs refault: the binary, the libraries that it preloads, manual pages and completions.
#
#   scripts/install.sh                          builds, and installs under /usr/local
#   scripts/install.sh --prefix ~/.local        under another directory
#   scripts/install.sh --prefix /usr --destdir build/root        staged, for packages
#   scripts/install.sh --from target/release    what is built there already
#   scripts/install.sh --prefix … --uninstall   removes what this script installs
set -euo pipefail

usage() { sed -n 's/^# \{0,1\}//;2,9p' "$0" >&2; exit 2; }

prefix=/usr/local destdir= from= uninstall=
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=${2:?--prefix needs a directory}; shift 2 ;;
        --destdir) destdir=${2:?--destdir needs a directory}; shift 2 ;;
        --from) from=${2:?--from needs a directory}; shift 2 ;;
        --uninstall) uninstall=1; shift ;;
        *) usage ;;
    esac
done

top=$(cd "$(dirname "$0")/.." && pwd)
root=$destdir$prefix

if [ -n "$uninstall" ]; then
    rm -f "$root/bin/refault" "$root"/share/man/man1/refault.1.gz "$root"/share/man/man1/refault-*.1.gz \
        "$root/share/bash-completion/completions/refault" "$root/share/zsh/site-functions/_refault" \
        "$root/share/fish/vendor_completions.d/refault.fish"
    rm -rf "$root/lib/refault" "$root/share/doc/refault"
    exit
fi

if [ -z "$from" ]; then
    cargo build --release --manifest-path "$top/Cargo.toml" -p refault-cli
    from=${CARGO_TARGET_DIR:-$top/target}/release
fi

# Without symbols, where there is a tool that takes them out.
strip=$(command -v strip > /dev/null && echo -s || true)
install -D $strip -m 755 "$from/refault" "$root/bin/refault"
# Those that this version has. The binary holds them too; installed files need not be unpacked.
for name in librefault_boundary.so; do
    for library in "$from/$name" "$from/deps/$name"; do
        if [ -f "$library" ]; then
            install -D $strip -m 644 "$library" "$root/lib/refault/$name"
            break
        fi
    done
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$from/refault" man --out "$scratch"
for page in "$scratch"/*.1; do
    gzip -9n "$page"
    install -D -m 644 "$page.gz" "$root/share/man/man1/$(basename "$page").gz"
done
for shell in bash zsh fish; do "$from/refault" completions $shell > "$scratch/$shell"; done
install -D -m 644 "$scratch/bash" "$root/share/bash-completion/completions/refault"
install -D -m 644 "$scratch/zsh" "$root/share/zsh/site-functions/_refault"
install -D -m 644 "$scratch/fish" "$root/share/fish/vendor_completions.d/refault.fish"
install -D -m 644 "$top/README.md" "$root/share/doc/refault/README.md"
install -m 644 "$top/LICENSE-MIT" "$top/LICENSE-APACHE" "$root/share/doc/refault/"
