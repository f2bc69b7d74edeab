-- A table of strings, partly replaced, read in the order of another key.
local count = 150000
local entries = {}
for i = 0, count - 1 do entries["key " .. i] = string.rep("value ", 6) .. i end
for i = 0, count - 1, 4 do entries["key " .. i] = "short " .. i end
local digest = 0
for i = 0, count - 1 do
  local value = entries["key " .. (i * 7919 % count)]
  digest = (digest * 33 + #value + value:byte(-1)) % 1000000007
end
print(string.format("%d", digest))
