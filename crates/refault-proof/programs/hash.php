<?php
// Arrays of strings and of arrays, a part of them sorted, and a child that reads what its parent wrote.
ini_set('memory_limit', '-1');
$count = 100000;
$table = [];
for ($i = 0; $i < $count; $i++) $table["key $i"] = ['number' => $i * 7919 % $count, 'text' => str_repeat('value ', 8) . $i];
$part = array_slice($table, 0, 40000);
uasort($part, fn($a, $b) => $a['number'] <=> $b['number']);
$digest = hash_init('md5');
foreach ([$part, $table] as $each) foreach ($each as $key => $value) hash_update($digest, $key . $value['text']);
echo hash_final($digest), ' ', count($table), "\n";
if (function_exists('pcntl_fork')) {
    if (($child = pcntl_fork()) == 0) { echo md5(implode(',', array_keys($table))), "\n"; exit(3); }
    pcntl_waitpid($child, $status);
    echo pcntl_wexitstatus($status), "\n";
}
