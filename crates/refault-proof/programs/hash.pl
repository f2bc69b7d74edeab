# A hash of strings, read in the order of another key, then by sorted keys.
use strict;
use warnings;
my %table;
my $count = 150_000;
$table{"key $_"} = "value " x 6 . $_ for 0 .. $count - 1;
my $digest = 0;
for my $i (0 .. $count - 1) {
    my $value = $table{ "key " . ($i * 7919 % $count) };
    $digest = ($digest * 33 + length($value) + ord(substr($value, -1))) % 1_000_000_007;
}
my @keys = sort keys %table;
print "$digest $keys[0] $keys[-1] ", scalar(@keys), "\n";
