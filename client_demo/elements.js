/** Shorthands for the document. */

export const $ = (id) => document.getElementById(id);

/** Matches if the player wants nothing to move. */
export const CALM = matchMedia("(prefers-reduced-motion: reduce)");

/** An element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A button with a name for those who do not see where it stands. */
export function button(text, label, act, className = "") {
  const made = make("button", { type: "button", textContent: text, onclick: act, className });
  made.setAttribute("aria-label", label);
  return made;
}

/** What was said in a turn that is shown, as it was written. */
export function textOf(turn) {
  const shown = turn.querySelector(".text");
  return shown.source ?? shown.textContent;
}

/** Have a file saved. */
export function save(content, name) {
  const link = make("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Whether a key belongs to an input method; in Safari the last one comes after the composition. */
export function composes(event) {
  return event.isComposing || event.keyCode === 229;
}

/** Tell those who cannot see the page; the same again is not repeated. */
export function announce(text) {
  if ($("announcer").textContent !== text) $("announcer").textContent = text;
}
