/** Markdown of replies: emphasis, code, links, lists, quotations, headings. No text becomes markup. */

import { make } from "./elements.js";

const KINDS = [
  ["code", /^ {0,3}(?:`{3,}|~{3,})/],
  ["headings", /^#{1,6}\s+\S/],
  ["bullets", /^\s*[-*+]\s+\S/],
  ["numbers", /^\s*\d{1,9}[.)]\s+\S/],
  ["quotation", /^\s*>/],
  ["blank", /^\s*$/],
];
// What is emphasised is bounded, so that a text of nothing but marks is read in linear time.
const INLINE = new RegExp(
  [
    /\\(?<escaped>[\\`*_[\]#>~+-])/u,
    /(?<ticks>`{1,3})(?<code>[^\n]{1,1000}?)\k<ticks>(?!`)/u,
    /\[(?<label>[^\]\n]{1,300})\]\((?<address>https?:\/\/[^\s)]{1,2000})\)/u,
    /(?<stars>\*{1,3})(?=[^\s*])(?<starred>[^\n]{1,1000}?)(?<=[^\s*])\k<stars>(?!\*)/u,
    /(?<![\p{L}\p{N}_])(?<bars>_{1,2})(?=[^\s_])(?<barred>[^\n]{1,1000}?)(?<=[^\s_])\k<bars>(?![\p{L}\p{N}_])/u,
  ]
    .map(({ source }) => source)
    .join("|"),
  "gu",
);
const EMPHASIS = [["em"], ["strong"], ["strong", "em"]]; // by the number of marks

const BLOCKS = {
  headings: (lines) => lines.map((line) => make("p", {}, make("strong", {}, ...inline(line.replace(/^#+\s+/, ""))))),
  bullets: (lines) => [make("ul", {}, ...items(lines))],
  numbers: (lines) => [make("ol", { start: parseInt(lines[0], 10) }, ...items(lines))],
  quotation: (lines) => [make("blockquote", {}, ...inline(lines.map((line) => line.replace(/^\s*>\s?/, "")).join("\n")))],
  words: (lines) => [make("p", {}, ...inline(lines.join("\n")))],
  blank: () => [],
};

/** The nodes that show a text; a text of one paragraph is shown without one. */
export function markdown(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    const begin = at++;
    const kind = kindOf(lines[begin]);
    if (kind === "code") {
      const fence = lines[begin].trim().match(/^[`~]+/)[0];
      while (at < lines.length && lines[at].trim() !== fence) at++;
      blocks.push(make("pre", {}, make("code", { textContent: lines.slice(begin + 1, at).join("\n") })));
      at++;
      continue;
    }
    while (at < lines.length && kindOf(lines[at]) === kind) at++;
    blocks.push(...BLOCKS[kind](lines.slice(begin, at)));
  }
  return blocks.length === 1 && blocks[0].localName === "p" ? [...blocks[0].childNodes] : blocks;
}

function kindOf(line) {
  return KINDS.find(([, pattern]) => pattern.test(line))?.[0] ?? "words";
}

function items(lines) {
  return lines.map((line) => make("li", {}, ...inline(line.replace(/^\s*(?:[-*+]|\d+[.)])\s+/, ""))));
}

function inline(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    nodes.push(text.slice(end, match.index), shown(match.groups));
    end = match.index + match[0].length;
  }
  return [...nodes, text.slice(end)].filter((node) => node !== "");
}

function shown({ escaped, code, label, address, stars, starred, bars, barred }) {
  if (escaped) return escaped;
  if (code) return make("code", { textContent: code });
  if (address) return make("a", { href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow" }, label);
  const tags = EMPHASIS[(stars ?? bars).length - 1];
  return tags.reduceRight((nodes, tag) => [make(tag, {}, ...nodes)], inline(starred ?? barred))[0];
}
