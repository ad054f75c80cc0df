// What is hard to read in an SVG drawing: text of little contrast, cut off, covered, overlapping
// other text, or tiny. Geometry is the browser's own; colours are composed here, shape by shape.

(() => {
const PAINTED = "rect, circle, ellipse, polygon, path";
const ASIDE = "defs, pattern, clipPath, mask, marker, symbol";

// [red, green, blue, alpha] of a CSS colour, or null where there is none to speak of.
function color(text) {
  const found = text.match(/^rgba?\(([^)]*)\)/);
  if (!found) return null;
  const [r, g, b, a = 1] = found[1].split(/[\s,/]+/).map(Number);
  return [r, g, b, a];
}

function over(below, above, alpha) {
  return below.map((value, i) => value * (1 - alpha) + above[i] * alpha);
}

// Relative luminance and contrast as WCAG 2 defines them.
function luminance(rgb) {
  const [r, g, b] = rgb.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

function opacity(node, top) {
  let product = 1;
  for (let at = node; at && at !== top.parentNode; at = at.parentNode) {
    product *= Number(getComputedStyle(at).opacity);
  }
  return product;
}

function covers(shape, x, y) {
  const point = new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());
  return shape.isPointInFill(point);
}

// The colour under a point of the window, from the shapes given, in the order they are painted.
function ground(shapes, x, y, svg) {
  let below = [255, 255, 255];
  let hatched = false;
  for (const shape of shapes) {
    const style = getComputedStyle(shape);
    if (style.fill === "none" || style.visibility === "hidden" || !covers(shape, x, y)) continue;
    const paint = color(style.fill);
    if (!paint) { hatched = true; continue; }
    const alpha = paint[3] * Number(style.fillOpacity) * opacity(shape, svg);
    if (alpha > 0.99) hatched = false;
    below = over(below, paint, alpha);
  }
  return { below, hatched };
}

// Where the glyphs are: the box of a line of text has room above and below them.
function box(text) {
  const { left, right, top, bottom, width, height } = text.getBoundingClientRect();
  const upright = height > width && text.textContent.length > 2;
  const [dx, dy] = upright ? [width / 4, 0] : [0, height / 4];
  return { left: left + dx, right: right - dx, top: top + dy, bottom: bottom - dy };
}

function before(a, b) {
  return Boolean(a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING);
}

function complaints(svg, smallest) {
  const found = [];
  const drawn = selector => [...svg.querySelectorAll(selector)].filter(n => !n.closest(ASIDE));
  const shapes = drawn(PAINTED);
  const texts = drawn("text").filter(t => t.textContent.trim() && t.getBoundingClientRect().width);
  const frame = svg.getBoundingClientRect();
  for (const text of texts) {
    const say = what => found.push(`text ${JSON.stringify(text.textContent)} ${what}`);
    const style = getComputedStyle(text);
    const at = box(text);
    if (at.left < frame.left - 1 || at.right > frame.right + 1 ||
        at.top < frame.top - 1 || at.bottom > frame.bottom + 1) say("is cut off by the edge");
    const matrix = text.getScreenCTM();
    const pixels = parseFloat(style.fontSize) * Math.hypot(matrix.a, matrix.b);
    if (pixels < smallest - 0.05) say(`is ${pixels.toFixed(1)} pixels high`);
    const [ink, least] = [color(style.fill) ?? [0, 0, 0, 1],
      pixels >= 24 || (pixels >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5];
    const points = [0.1, 0.5, 0.9].map(f => [at.left + f * (at.right - at.left),
      (at.top + at.bottom) / 2]);
    for (const [x, y] of points) {
      const { below, hatched } = ground(shapes.filter(s => before(s, text)), x, y, svg);
      const alpha = ink[3] * Number(style.fillOpacity) * opacity(text, svg);
      const ratio = contrast(over(below, ink, alpha), below);
      if (hatched) { say("is on a hatch"); break; }
      if (ratio < least) { say(`has a contrast of ${ratio.toFixed(2)}`); break; }
      const hidden = shapes.filter(s => before(text, s) && !s.contains(text));
      if (ground(hidden, x, y, svg).below.some((v, i) => v !== 255) ||
          hidden.some(s => color(getComputedStyle(s).fill)?.[3] && covers(s, x, y))) {
        say("is covered by a shape");
        break;
      }
    }
  }
  for (let i = 0; i < texts.length; i++) {
    const a = box(texts[i]);
    for (let j = i + 1; j < texts.length; j++) {
      const b = box(texts[j]);
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 1) {
        found.push(`texts ${JSON.stringify(texts[i].textContent)} and ` +
          `${JSON.stringify(texts[j].textContent)} overlap`);
      }
    }
  }
  return found;
}

// Pictures made by the library below `root`, inline or in an image, each with its words.
function pictures(root) {
  const found = [];
  for (const image of root.querySelectorAll('img[src^="data:image/svg+xml"]')) {
    const source = decodeURIComponent(image.src.slice(image.src.indexOf(",") + 1));
    const svg = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
    found.push({ svg: document.importNode(svg, true), words: image.alt, width: image.width });
  }
  for (const svg of root.querySelectorAll("figure > svg")) {
    const words = svg.getAttribute("aria-label") ?? svg.querySelector("title")?.textContent ?? "";
    found.push({ svg, words, width: null });
  }
  return found;
}

window.unreadable = (root, smallest) => pictures(root).map(({ svg, words, width }) => {
  const found = [];
  if (words.trim().length < 20) found.push(`its alt text is ${JSON.stringify(words)}`);
  if (width === null) return { words, found: [...found, ...complaints(svg, smallest)] };
  // As large as the image shows it, on a sheet of its own, for as long as it takes to look.
  const sheet = document.createElement("div");
  sheet.style.cssText = "position:fixed;left:0;top:0;z-index:-1;background:#fff";
  svg.style.cssText = `width:${width}px;height:auto`;
  sheet.append(svg);
  document.body.append(sheet);
  found.push(...complaints(svg, smallest));
  sheet.remove();
  return { words, found };
});
})();
