/** Texts that are too long are said to be, and never cut. */

import { number, say } from "./language.js";

/** What is wrong with the length of a text; empty if nothing is. Characters count as on the server. */
export function tooLong(text, limit) {
  if (text.length <= limit) return "";
  const length = [...text].length;
  return length > limit ? say("too-long", { n: number(length), limit: number(limit) }) : "";
}

/** Have forms with fields that have a `data-limit` refuse what is longer. */
export function watchLengths() {
  document.addEventListener("input", ({ target }) => {
    if (target.dataset.limit) target.setCustomValidity(tooLong(target.value, Number(target.dataset.limit)));
  });
}
