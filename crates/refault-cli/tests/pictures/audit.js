// What a reader could not read in a report, in each frame: printed as JSON into an element of its own, one string per
// finding.
(() => {
 const audit = (frame) => {
  const page = frame.contentDocument, view = frame.contentWindow;
  const found = [];
  const shown = (element) => element.getClientRects().length > 0 && view.getComputedStyle(element).visibility !== "hidden";
  const text = (element) => element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
  const width = view.innerWidth;
  const scrolls = (element) => element.closest(".scroll");

  // Words that are broken inside, and words beyond the edge of the page.
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  const range = page.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!shown(parent) || parent.closest("svg, code, style, title, desc, h1, small, .breaks")) continue;
    for (const word of node.data.matchAll(/[^\s\/–-]+/g)) {
      if (word[0].length > 24) continue;
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) found.push(`broken word: ${word[0]} in <${parent.localName}>`);
      const box = range.getBoundingClientRect();
      // Tables may scroll; what explains them may not.
      if (box.right > width + 1 && (!scrolls(parent) || parent.closest("caption"))) found.push(`beyond the edge: ${word[0]} in <${parent.localName}>`);
    }
  }
  // The page itself must not scroll sideways.
  if (page.documentElement.scrollWidth > width + 1)
    found.push(`the page is ${page.documentElement.scrollWidth} px wide`);
  // Boxes that cut what they hold.
  for (const element of page.body.querySelectorAll("*")) {
    if (element.closest("svg") || !shown(element)) continue;
    const style = view.getComputedStyle(element);
    const cuts = ["hidden", "clip"].includes(style.overflowX) || ["hidden", "clip"].includes(style.overflowY);
    if (cuts && (element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1))
      found.push(`cut: <${element.localName}> ${text(element)}`);
  }
  // Texts of a picture that lie on each other or outside it, or that are too small.
  for (const svg of page.querySelectorAll("svg:not(.swatch)")) {
    if (!shown(svg)) continue;
    const whole = svg.getBoundingClientRect();
    const labels = [...svg.querySelectorAll("text")].filter((label) => shown(label) && text(label));
    const boxes = labels.map((label) => label.getBoundingClientRect());
    boxes.forEach((box, i) => {
      if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.top < whole.top - 1 || box.bottom > whole.bottom + 1)
        found.push(`outside its picture: ${text(labels[i])}`);
      const size = parseFloat(view.getComputedStyle(labels[i]).fontSize) * (whole.width / svg.viewBox.baseVal.width);
      if (size < 7.9) found.push(`${size.toFixed(1)} px: ${text(labels[i])}`);
      for (let j = i + 1; j < boxes.length; j++) {
        const other = boxes[j];
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (across > 1 && down > 2) found.push(`on each other: ${text(labels[i])} | ${text(labels[j])}`);
      }
    });
    // Lines that cannot be told apart.
    const looks = new Map();
    for (const line of svg.querySelectorAll(".series")) {
      const path = line.querySelector("path");
      if (!path) continue;
      const style = view.getComputedStyle(path);
      const look = `${style.stroke} ${style.strokeDasharray}`;
      const name = line.querySelector("title").textContent;
      if (looks.has(look)) found.push(`the same look: ${looks.get(look)} | ${name}`);
      looks.set(look, name);
    }
  }
  // Contrast of text against what lies behind it.
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = view.getComputedStyle(at).backgroundColor;
      const [r, g, b, a = 1] = channels(colour);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  for (const element of page.body.querySelectorAll("p, td, th, h1, h2, h3, h4, li, dd, dt, figcaption, caption, label, svg text")) {
    if (!shown(element) || !text(element)) continue;
    const style = view.getComputedStyle(element);
    const colour = channels(element.localName === "text" ? style.fill : style.color);
    if (colour.length < 3) continue;
    const [a, b] = [luminance(colour), luminance(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`contrast ${((a + 0.05) / (b + 0.05)).toFixed(1)}: ${text(element)}`);
  }
  const dark = view.matchMedia("(prefers-color-scheme: dark)").matches;
  return { dark, width, found: [...new Set(found)].slice(0, 60) };
 };
 const result = document.createElement("pre");
 result.id = "audit";
 result.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(audit));
 document.body.replaceChildren(result);
})();
