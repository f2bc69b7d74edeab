# A process in a namespace of its own has the number that a stranger has outside, and memory that others of its tree
# lack. Argument: the command. Prints the number there, and "lives" or how the stranger ended. Needs root.
sleep 60 &
stranger=$!
hog='import os, time; held = bytearray(b"x") * (20 << 20); print(os.getpid() == '$stranger', flush=True); time.sleep(3)'
worker='
memory = bytearray(18 << 20)
for turn in range(60):
    for at in range(0, len(memory), 4096):
        memory[at] = turn
'
export hog worker
"$1" run --memory 24M --quiet -- sh -c "
    unshare -pf --mount-proc sh -c 'echo $((stranger - 1)) > /proc/sys/kernel/ns_last_pid; python3 -c \"\$hog\" & wait' &
    sleep 1
    python3 -c \"\$worker\"
    wait"
if kill "$stranger" 2>/dev/null; then echo lives; else wait "$stranger"; echo "ended: $?"; fi
