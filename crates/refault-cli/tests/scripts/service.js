// Holds 200 MiB of which it looks at 20 all the time, and at all whenever a line comes; answers with a sum. They are
// WebAssembly's, as those have mappings of their own, which the kernel does not join with others. Prints "ready" first.
const memory = (mib, value) =>
    new Uint8Array(new WebAssembly.Memory({ initial: mib * 16 }).buffer).fill(value);
const cold = memory(180, 1);
const hot = memory(20, 2);
const sum = (bytes) => {
    let total = 0;
    for (let at = 0; at < bytes.length; at += 4096) total += bytes[at];
    return total;
};
setInterval(() => sum(hot), 100);
const lines = require('readline').createInterface({ input: process.stdin });
lines.on('line', () => console.log(sum(hot) + sum(cold)));
console.log('ready');
