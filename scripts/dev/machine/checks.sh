#!/bin/sh
# What is tried in each machine: programs alone and under a budget, and the commands that look at programs. Prints one
# line per row: name, a tab, "right" or what is wrong. Part of scripts/dev/machines; needs refault in the path.
#
#     checks.sh [all|few|kernel]
set -u
which=${1:-all}
work=$(mktemp -d) || exit 1
cd "$work" || exit 1
trap 'cd / && rm -rf "$work"' EXIT
export LC_ALL=C HOME="$work" XDG_RUNTIME_DIR="$work"

row() { printf '%s\t%s\n' "$1" "$2"; }

# The last line of a file of messages, for a row.
said() { tail -n 1 "$1" | cut -c 1-150; }

# program NAME MEBIBYTES COMMAND: the same output and end as alone.
program() {
    name=$1 memory=$2
    shift 2
    timeout 600 sh -c "$1" >alone 2>alone.err </dev/null
    alone=$?
    if [ $alone -ge 124 ] || [ ! -s alone ]; then
        row "$name" "not here: alone it ends with $alone: $(said alone.err)"
        return
    fi
    timeout 1800 refault run --memory "${memory}M" -- sh -c "$1" >managed 2>managed.err </dev/null
    managed=$?
    if ! grep -q 'refault: .* faults' managed.err; then
        row "$name" "WRONG: nothing says that it was managed: $(said managed.err)"
    elif [ $managed = $alone ] && cmp -s alone managed; then
        row "$name" right
    else
        row "$name" "WRONG: ends with $managed, alone $alone: $(said managed.err)"
    fi
}

# command NAME COMMAND: ends with 0.
command_ends() {
    if timeout 1800 sh -c "$2" >out 2>err </dev/null; then row "$1" right; else row "$1" "WRONG: $(said err)"; fi
}

# probes: small C programs print the same and end the same alone and under a budget; those that cannot run here are left out.
probes() {
    refault-proof --refault "$(command -v refault)" probes --compiled /usr/local/lib/refault-probes >probes.out 2>&1
    wrong=$(sed -n 's/ *WRONG$//p' probes.out | tr '\n' ' ')
    right=$(grep -c ' right$' probes.out)
    if [ -n "$wrong" ]; then
        row probes "WRONG: $(grep -m 1 'said:' probes.out | cut -c 1-150) $wrong"
        cat probes.out >&2
    elif [ "$right" -lt 60 ]; then
        row probes "WRONG: only $right ran: $(said probes.out)"
    else
        row probes right
    fi
}

# own_kernel: what only a kernel of one's own can be asked: its groups, a zram device, its generations.
own_kernel() {
    timeout 600 perl -e "$(size 60000)" >alone
    timeout 1800 refault run --backend kernel --memory 16M --summary kernel.json -- perl -e "$(size 60000)" >managed 2>managed.err
    status=$?
    peak=$(perl -ne 'print $1 if /"peak_bytes": *([0-9]+)/' kernel.json)
    if [ $status != 0 ] || ! cmp -s alone managed; then
        row 'backend kernel' "WRONG: ends with $status: $(said managed.err)"
    elif [ "${peak:-0}" -lt 1048576 ] || [ "$peak" -gt $((16 * 1048576 * 102 / 100)) ]; then
        row 'backend kernel' "WRONG: a peak of ${peak:-no} bytes"
    else
        row 'backend kernel' right
    fi
    left=$(refault doctor --clean 2>&1)
    if [ "$left" = 'nothing was left' ]; then row 'nothing is left' right; else row 'nothing is left' "WRONG: $left"; fi
    mkdir -p /sys/fs/cgroup/tried
    sh -c 'echo $$ >/sys/fs/cgroup/tried/cgroup.procs; exec perl -e "my \$s = q(x) x (40 << 20); sleep 3600"' &
    sleeper=$!
    sleep 20
    if ! timeout 1800 refault host --once --ages 1s,5s --json >host.json 2>err; then
        row host "WRONG: $(said err)"
    # Its 40 MiB are the group's, not touched for five seconds, and the kernel's generations know that.
    elif perl -0777 -ne '
        my ($group) = /("path":"\/tried".*?"proposal")/s;
        my ($anonymous) = $group =~ /"anonymous_bytes":(\d+)/;
        my (undef, $used) = $group =~ /"seconds":[0-9.]+,"bytes":(\d+)/g;
        exit !(/"source":"the kernel.s generations/ && $anonymous >= 40 << 20 && $used < 8 << 20)' host.json; then
        row host right
    else
        row host "WRONG: $(perl -0777 -ne 'print substr($1, 0, 900) if /("path":"\/tried".*)/s' host.json)"
    fi
    kill $sleeper
    given_group
}

# given_group: an ordinary user with a group of its own, and the machine's swap: zram devices are root's.
given_group() {
    given=/sys/fs/cgroup/given
    number=$(cat /sys/class/zram-control/hot_add)
    echo 64M >"/sys/block/zram$number/disksize"
    mkswap "/dev/zram$number" >/dev/null && swapon "/dev/zram$number"
    mkdir -p $given/shell
    echo +memory >$given/cgroup.subtree_control
    chown -R 65534 $given
    printf '%s' "$(size 60000)" >/tmp/table.pl
    timeout 1800 sh -c "echo \$\$ >$given/shell/cgroup.procs; exec unprivileged refault run --backend kernel --memory 16M \
        --summary /tmp/given.json -- perl /tmp/table.pl" >managed 2>managed.err
    status=$?
    peak=$(perl -ne 'print $1 if /"peak_bytes": *([0-9]+)/' /tmp/given.json)
    if [ $status != 0 ] || ! cmp -s alone managed; then
        row 'a group given to a user' "WRONG: ends with $status: $(said managed.err)"
    elif [ "${peak:-0}" -lt 1048576 ] || [ "$peak" -gt $((16 * 1048576 * 102 / 100)) ]; then
        row 'a group given to a user' "WRONG: a peak of ${peak:-no} bytes"
    elif [ "$(ls -d $given/*/)" != "$given/shell/" ]; then
        row 'a group given to a user' "WRONG: left: $(ls -d $given/*/ | tr '\n' ' ')"
    else
        row 'a group given to a user' right
    fi
    # Without a group that is its own, one line says what would give it.
    unprivileged refault run --backend kernel --memory 16M -- true >managed 2>managed.err
    status=$?
    if [ $status = 1 ] && grep -q 'systemd-run' managed.err; then
        row 'no group' right
    else
        row 'no group' "WRONG: ends with $status: $(said managed.err)"
    fi
}

table='my %h; $h{$_ * 7919 % 1000003} = "value $_" for 1 .. SIZE; my $s = 0; $s += length $h{$_} for keys %h; print "$s\n"'
size() { printf '%s' "$table" | sed "s/SIZE/$1/"; }
if [ "$which" = kernel ]; then
    own_kernel
    exit
fi
command_ends doctor 'refault doctor --quick'
command_ends 'doctor PROGRAM' 'refault doctor sh'
program 'system()' 8 "perl -e 'my @l = (1) x 300000; print system(\"echo child\"), \"\\n\"'"
program 'popen()' 8 "perl -e 'my @l = (1) x 300000; open(P, \"echo child|\"); print <P>; close P; print \"\$?\\n\"'"
# Some 50,000 pages come back: with twice as many entries it is a million, of which an emulator takes half a millisecond each.
program 'perl, a table' 8 "perl -e '$(size 36000)'"
program 'awk, sums' 6 "seq 60000 | awk '{ k = \$1 * 7919 % 10007; s[k] = s[k] \" \" \$1 } END { n = 0; for (k in s) n += length(s[k]); print n }'"
# A program for another libc: a child runs as it is, or at the pace of the kernel where that keeps the budget; the pager refuses the first in words.
if of-musl >alone 2>alone.err; then
    timeout 1800 refault run --memory 16M -- sh -c of-musl >managed 2>managed.err </dev/null
    if cmp -s alone managed; then row 'musl, a child' right; else row 'musl, a child' "WRONG: $(said managed.err)"; fi
    timeout 600 refault run --backend pager --memory 8M -- of-musl >managed 2>managed.err </dev/null
    status=$?
    if [ $status = 1 ] && grep -q "refault: .*another libc's" managed.err; then
        row 'musl, the first' right
    else
        row 'musl, the first' "WRONG: $(said managed.err)"
    fi
else
    row musl "not here: $(said alone.err)"
fi
if [ "$which" = all ]; then
    program 'perl, sorted' 8 "perl -e 'my @l = map { \$_ * 7919 % 1000003 } 1 .. 80000; @l = sort { \$a <=> \$b } @l; print \"@l[0 .. 9]\\n\"'"
    program 'perl, forks' 8 "perl -e 'my @l = (1) x 200000; for (1 .. 5) { my \$p = fork; if (!\$p) { \$l[\$_] = 2 for 0 .. 99999; exit 3 } waitpid \$p, 0; print \$? >> 8, \"\\n\" }'"
    program 'python, a list' 12 "python3 -c 'l = [str(i * 7919 % 1000003) for i in range(60000)]; l.sort(); print(len(\"\".join(l)), l[5])'"
    program 'python, children' 12 "python3 -c 'import subprocess; l = list(range(100000)); print(subprocess.run([\"echo\", \"child\"], capture_output=True).stdout, sum(l))'"
    program 'sort' 6 'seq 80000 -1 1 | sort -n | cksum'
    program 'sort, two threads' 8 'seq 80000 -1 1 | sort --parallel=2 -S 6M -n | cksum'
    program 'xz' 8 'seq 100000 | xz -3 | xz -d | cksum'
    program 'gzip' 4 'seq 100000 | gzip | gzip -d | cksum'
    program 'tar' 4 'cp -r /etc/apt . 2>/dev/null; tar -cf - apt 2>/dev/null | tar -tf - | sort | head -5; echo done'
    program 'bash, a loop' 6 "bash -c 's=; for i in \$(seq 3000); do s+=\"\$i \"; done; echo \${#s}'"
    program 'sed' 4 "seq 50000 | sed -n '1!G;h;\$p' 2>/dev/null | head -c 0; seq 2000 | sed '1!G;h;\$!d' | cksum"
    command_ends record "refault record --out t.rft -- perl -e '$(size 20000)' && refault trace info t.rft"
    command_ends size "refault size --budgets 50%,100% --runs 1 -- perl -e '$(size 20000)'"
    command_ends pool "refault pool --memory 32M --name tried & p=\$!; n=0; until refault pool status tried >/dev/null 2>&1; do n=\$((n + 1)); [ \$n -lt 600 ] || exit 1; sleep 0.1; done; refault run --pool tried -- perl -e '$(size 20000)' && kill \$p"
    # Reclaiming needs swap, or files: what there is to say is said.
    command_ends reclaim 'sleep 60 & p=$!; refault reclaim --pid $p --idle 1s --for 2s --dry-run; s=$?; kill $p; [ $s = 0 ] || grep -q . err'
fi
if [ "$which" = all ]; then probes; fi
if [ "$which" = all ] && [ -e /modules/order ]; then own_kernel; fi
if command -v unprivileged >/dev/null; then
    command_ends 'as nobody' "unprivileged refault run --memory 8M -- perl -e '$(size 30000)'"
fi
