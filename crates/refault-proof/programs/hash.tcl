# A dictionary of strings, read in the order of another key.
set count 80000
for {set i 0} {$i < $count} {incr i} { dict set table "key $i" "[string repeat {value } 8]$i" }
set digest 0
for {set i 0} {$i < $count} {incr i} {
    set value [dict get $table "key [expr {$i * 7919 % $count}]"]
    set digest [expr {($digest * 33 + [string length $value] + [scan [string index $value end] %c]) % 1000000007}]
}
puts "$digest [dict size $table]"
