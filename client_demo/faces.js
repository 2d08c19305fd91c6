/** Faces of companions, drawn here: known ones for the examples, for others one made of the slug. */

const SVG = "http://www.w3.org/2000/svg";
const KNOWN = {
  wren: { ground: "#9fc3cf", cloth: "#1f4a5c", skin: "#e9bd99", hair: "#e8e4da", style: "cap", trim: "#c8553d" },
  odile: { ground: "#c9d8a6", cloth: "#5b3a63", skin: "#8a5a3c", hair: "#2b1d1a", style: "bun", trim: "#d9a441" },
  tock: { ground: "#e6cfa3", cloth: "#6a4b2a", skin: "#c99a4b", hair: "#7d5a2b", style: "clockwork", trim: "#2f6f73" },
  saffi: { ground: "#f0b98d", cloth: "#8c3b2e", skin: "#c58a5e", hair: "#3a211a", style: "hood", trim: "#f3e3c3" },
};
const GROUNDS = ["#b9c9e6", "#d7c2e0", "#bcd9c6", "#efd0b0", "#e6bcbc", "#c3dcdf"];
const CLOTHS = ["#34495e", "#5b3a63", "#27594b", "#7a4526", "#6b2d3c", "#3d4a73"];
const SKINS = ["#f1cba8", "#d9a27a", "#a86f4b", "#74482f"];
const HAIRS = ["#2b1d1a", "#6b4226", "#b98343", "#8b8b8b", "#a33b20"];
const STYLES = ["short", "bun", "long", "cap", "hood"];

/** The face of a companion, as a picture of its own. */
export function face(slug) {
  const look = KNOWN[slug] ?? made(slug);
  const picture = draw("svg", { viewBox: "0 0 64 64", class: "face", "aria-hidden": "true" });
  picture.append(draw("circle", { cx: 32, cy: 32, r: 32, fill: look.ground }), ...portrait(look));
  return picture;
}

function made(slug) {
  let hash = 7;
  for (const character of slug) hash = (hash * 31 + character.codePointAt(0)) >>> 0;
  const pick = (choices, shift) => choices[(hash >>> shift) % choices.length];
  return {
    ground: pick(GROUNDS, 0), cloth: pick(CLOTHS, 3), skin: pick(SKINS, 6), hair: pick(HAIRS, 9), style: pick(STYLES, 12), trim: "#e8dcc5",
  };
}

function portrait({ cloth, skin, hair, style, trim }) {
  const shoulders = draw("path", { d: "M10 62c1-12 10-17 22-17s21 5 22 17a32 32 0 0 1-44 0z", fill: cloth });
  const neck = draw("rect", { x: 27, y: 38, width: 10, height: 11, rx: 4, fill: skin });
  const head = draw("ellipse", { cx: 32, cy: 29, rx: 12, ry: 13.5, fill: skin });
  if (style === "clockwork") return [shoulders, ...clockwork(skin, hair, trim)];
  const eyes = [27, 37].map((x) => draw("circle", { cx: x, cy: 29, r: 1.5, fill: "#241a17" }));
  const smile = draw("path", { d: "M28 35.5q4 3 8 0", fill: "none", stroke: "#241a17", "stroke-width": 1.5, "stroke-linecap": "round" });
  const [behind, front] = hairOf(style, hair, trim, cloth);
  return [...behind, shoulders, neck, head, ...eyes, smile, ...front];
}

/** What is behind the head, and what is in front of it. */
function hairOf(style, hair, trim, cloth) {
  const fringe = draw("path", { d: "M19.5 29c-1-11 5-16 12.500-16s13.500 5 12.500 16c-2-6-5-8-9-8.500-5 2-11 1-16 8.500z", fill: hair });
  const looks = {
    short: [[], [fringe]],
    bun: [[draw("circle", { cx: 32, cy: 10, r: 6.5, fill: hair })], [fringe, draw("rect", { x: 27, y: 13, width: 10, height: 2.5, rx: 1.2, fill: trim })]],
    long: [[draw("path", { d: "M17 30c0-12 6-18 15-18s15 6 15 18v18H17z", fill: hair })], [fringe]],
    cap: [
      [draw("path", { d: "M19 30h26v6q-2 8-13 11-11-3-13-11z", fill: hair })],
      [draw("path", { d: "M18 24c0-9 6-13 14-13s14 4 14 13z", fill: trim }), draw("rect", { x: 16.5, y: 21.5, width: 31, height: 5, rx: 2.5, fill: cloth })],
    ],
    hood: [
      [draw("path", { d: "M14 48c-2-24 4-38 18-38s20 14 18 38z", fill: cloth })],
      [draw("path", { d: "M19 28c0-10 5-14 13-14s13 4 13 14c-3-6-7-8-13-8s-10 2-13 8z", fill: trim })],
    ],
  };
  return looks[style];
}

function clockwork(brass, dark, glow) {
  return [
    draw("rect", { x: 28, y: 40, width: 8, height: 8, fill: dark }),
    draw("rect", { x: 19, y: 16, width: 26, height: 26, rx: 8, fill: brass }),
    draw("path", { d: "M32 16V9", stroke: dark, "stroke-width": 2.5 }),
    draw("circle", { cx: 32, cy: 8, r: 3, fill: glow }),
    ...[26, 38].map((x) => draw("circle", { cx: x, cy: 27, r: 4, fill: "#fdf6e3", stroke: dark, "stroke-width": 2 })),
    ...[26, 38].map((x) => draw("circle", { cx: x, cy: 27, r: 1.6, fill: glow })),
    draw("path", { d: "M26 36h12M29 34.500v3M35 34.500v3", stroke: dark, "stroke-width": 1.6, "stroke-linecap": "round" }),
  ];
}

function draw(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
