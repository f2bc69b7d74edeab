# Strings in a hash, threads that read it, and a forked child.
count = 100_000
table = {}
count.times { |i| table["key #{i}"] = ["value " * 8 + i.to_s, i] }
parts = 3.times.map do |part|
  Thread.new { (part...count).step(6).sum { |i| table["key #{i * 7919 % count}"][1] * (part + 1) } }
end
puts parts.map(&:value).join(" ")
$stdout.flush
pid = fork { puts table.values.map { |value| value[0].size }.sum; exit! 4 }
Process.wait(pid)
puts $?.exitstatus
GC.start
puts table.keys.sort[1000]
