# Several compressors one after another on the same data, there and back.
set -e
cat libraries.tar >/dev/null
for c in "zstd -q -10 -T2 -c" "xz -T2 -3 -c" "bzip2 -c" "gzip -c"; do
    set -- $c
    rm -f sum.$$
    $c <libraries.tar | tee >(md5sum >sum.$$) | $1 -d -c | md5sum
    # The shell does not wait for the sum of what is compressed.
    until [ -s sum.$$ ]; do sleep 0.05; done
    cat sum.$$
done
rm -f sum.$$
