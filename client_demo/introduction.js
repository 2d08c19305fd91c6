/** Who is speaking: remembered by this browser, asked for once. */

import { $ } from "./elements.js";
import { say } from "./language.js";
import { importSample } from "./samples.js";

const KEY = "foremind.user";

/** The user of this browser: `{id, name, sample}`; `sample` tells whether a sample past was wanted. */
export async function introduce(companions) {
  const known = localStorage.getItem(KEY);
  if (known) return JSON.parse(known);
  $("introduce").showModal();
  await new Promise((done) => $("introduce").addEventListener("close", done, { once: true }));
  const random = crypto.getRandomValues(new Uint32Array(2));
  const id = `page-${random[0].toString(36)}${random[1].toString(36)}`;
  const user = { id, name: $("name").value.trim() || say("introduce.nobody"), sample: $("sample").checked };
  if (user.sample) {
    // Without one there is a companion to speak with all the same.
    for (const { slug } of companions) await importSample(slug, user).catch((error) => console.warn(error));
  }
  localStorage.setItem(KEY, JSON.stringify(user));
  return user;
}
