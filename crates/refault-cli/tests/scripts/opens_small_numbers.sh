# Opens files in the directory $1 under every small number, then uses and forks with more memory than fits, and writes
# to the files: "child" to the seventh, and to each of the first "file" and its number. Prints how many values it has.
for n in 3 4 5 6 7 8 9; do eval "exec $n>$1/$n"; done
for ((n = 11; n < 64; n++)); do eval "exec $n>$1/$n"; done
values=()
for i in {1..120000}; do values+=("value $i"); done
look() {
    for i in {1..120000..997}; do
        [ "${values[i-1]}" = "value $i" ] || echo damaged
    done
}
(look; echo child >&7)
look
for n in 3 4 5 6 7 8 9; do echo "file $n" >&$n; done
echo ${#values[@]}
