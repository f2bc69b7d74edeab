// Fills a map with small objects, replaces a third of them, and reads all back in another order.
const COUNT = 400000;
const table = new Map();
for (let i = 0; i < COUNT; i++) table.set(`key ${i}`, { number: i, text: "value ".repeat(8) + i });
for (let i = 0; i < COUNT; i += 3) table.set(`key ${i}`, { number: -i, text: "again ".repeat(8) + i });
let digest = 0;
for (let i = 0; i < COUNT; i++) {
  const entry = table.get(`key ${(i * 7919) % COUNT}`);
  digest = (digest * 33 + entry.number + entry.text.length) % 2147483647;
}
console.log(digest, table.size);
