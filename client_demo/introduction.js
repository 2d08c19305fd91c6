/** Who is speaking: remembered by this browser, asked for once. */

import { $ } from "./elements.js";
import { say } from "./language.js";
import { importSample } from "./samples.js";

const KEY = "foremind.user";

/**
 * The user of this browser: `{id, name, sample, begun}`; `sample` tells whether sample pasts are
 * wanted, `begun` with which companions one has begun.
 */
export async function introduce() {
  const known = localStorage.getItem(KEY);
  if (known) return JSON.parse(known);
  $("name").value = "";
  $("introduce").showModal();
  await new Promise((done) => $("introduce").addEventListener("close", done, { once: true }));
  const random = crypto.getRandomValues(new Uint32Array(2));
  const id = `page-${random[0].toString(36)}${random[1].toString(36)}`;
  const user = { id, name: $("name").value.trim() || say("introduce.nobody"), sample: $("sample").checked, begun: [] };
  localStorage.setItem(KEY, JSON.stringify(user));
  return user;
}

/** The user was erased: this browser forgets who it was, too. */
export function forgetUser() {
  localStorage.removeItem(KEY);
}

/** Give a user who wants one a companion's sample past, the first time that they meet. */
export async function meet(user, slug, sample) {
  if (!user.sample || user.begun.includes(slug)) return;
  // Without one there is a companion to speak with all the same.
  await importSample(sample, slug, user).catch((error) => console.warn(error));
  user.begun.push(slug);
  localStorage.setItem(KEY, JSON.stringify(user));
}
