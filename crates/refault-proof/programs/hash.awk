# Arrays of strings, read in the order of another key.
BEGIN {
    count = 75000
    for (i = 0; i < count; i++) entries["key " i] = "value value value value " i
    for (i = 0; i < count; i++) digest = (digest * 33 + length(entries["key " (i * 7919 % count)])) % 1000000007
    print digest
}
