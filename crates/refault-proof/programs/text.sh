# The text tools in pipelines.
set -e
awk 'BEGIN { s = 1; for (i = 0; i < 250000; i++) { s = (s * 16807) % 2147483647; print s, i } }' >numbers.$$
sort --parallel=2 -S 100M numbers.$$ | md5sum
sort -n -S 100M numbers.$$ | uniq -w4 -c | tail -2
tac numbers.$$ | cut -d' ' -f1 | paste -sd+ | head -c 100000 | md5sum
grep -c 777 numbers.$$ || true
rm -f numbers.$$
