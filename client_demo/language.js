/** The page's texts, in the first of the browser's languages that there is a file for. */

const TRANSLATED = ["de", "es", "fr", "it", "ja", "ko", "pt", "zh"]; // besides English
const UNITS = [["year", 31_536_000], ["month", 2_592_000], ["day", 86_400], ["hour", 3_600], ["minute", 60]];

let language = "en";
let region = "en"; // the language as the browser has it, such as en-GB: dates and numbers are written so
let english = {};
let texts = {};

/** Load the texts, and put them where the document names their keys. */
export async function speak() {
  const known = (tag) => tag === "en" || TRANSLATED.includes(tag);
  region = navigator.languages.map((tag) => tag.split("@")[0]).find((tag) => known(plain(tag))) ?? "en";
  language = plain(region);
  [english, texts] = await Promise.all([load("en"), load(language)]);
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = say(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", say(element.dataset.label));
  for (const element of document.querySelectorAll("[data-hint]")) element.placeholder = say(element.dataset.hint);
}

/** The language of a tag. */
function plain(tag) {
  return tag.toLowerCase().split("-")[0];
}

async function load(name) {
  return (await fetch(`languages/${name}.json`)).json();
}

/** The text of a key, with what it has in braces replaced; English where a language lacks it. */
export function say(key, values = {}) {
  const text = texts[key] ?? english[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
}

/** The text of a value that the server names; the name itself where there is none. */
export function sayValue(family, value) {
  const key = `${family}.${value}`;
  return texts[key] ?? english[key] ?? value;
}

/** "1 memory", "3 memories": the text of a key and of the language's form for a number. */
export function sayCount(key, count) {
  const form = new Intl.PluralRules(language).select(count);
  const known = `${key}.${form}` in texts ? form : "other";
  return say(`${key}.${known}`, { n: number(count) });
}

/** That something failed, and why: where no answer comes, `fetch` throws a TypeError. */
export function failure(error) {
  return say("failed", { why: error instanceof TypeError ? say("unreachable") : error.message });
}

/** A number, as the language writes it there. */
export function number(value) {
  return value.toLocaleString(region);
}

/** A share, in percent. */
export function percent(share) {
  return share.toLocaleString(region, { style: "percent" });
}

/** "Ana, Bo and Mara", as the language lists them. */
export function listed(names) {
  return new Intl.ListFormat(region).format(names);
}

/** How long ago a moment was, in words. */
export function ago(moment) {
  const seconds = (Date.now() - Date.parse(moment)) / 1000;
  const [unit, length] = UNITS.find(([, each]) => seconds >= each) ?? ["minute", 60];
  return new Intl.RelativeTimeFormat(region, { numeric: "auto" }).format(-Math.round(seconds / length), unit);
}

/** Milliseconds in few digits. */
export function milliseconds(ms) {
  if (ms >= 10_000) return `${fixed(ms / 1000, 1)} s`;
  return `${fixed(ms, ms < 10 ? 1 : 0)} ms`;
}

function fixed(number, digits) {
  return number.toLocaleString(region, { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false });
}

/** A moment, as the language writes it there. */
export function moment(text, options = { dateStyle: "medium", timeStyle: "short" }) {
  return new Intl.DateTimeFormat(region, options).format(new Date(text));
}

/** Who said what is remembered, or that nobody did: a game reported it. */
export function origin({ speaker, memory_type }) {
  if (memory_type === "event") return say("memory.event");
  if (memory_type === "observation") return say("memory.observation");
  return say(speaker === "user" ? "you.said" : "companion.said");
}
