/** The companions that may be spoken with, and their faces to choose from. */

import { $, button } from "./elements.js";
import { face } from "./faces.js";

const FIRST = "wren"; // of the example companions

/** The companions, the first example first; null where the server requires a token. */
export async function companionList(token) {
  const answer = await fetch("/v1/companions", token ? { headers: { authorization: `Bearer ${token}` } } : {});
  if (!answer.ok) return null;
  return (await answer.json()).sort((one, other) => (other.slug === FIRST) - (one.slug === FIRST));
}

/** Show a face of each; `choose` is given the slug of the one that is clicked. */
export function showFaces(companions, choose) {
  const choices = companions.map(({ slug, name }) => {
    const choice = button("", name, () => choose(slug), "choice-of-face");
    choice.title = name;
    choice.dataset.slug = slug;
    choice.append(face(slug));
    return choice;
  });
  $("faces").replaceChildren(...choices);
}

/** Mark the face of the one that is spoken with. */
export function markFace(slug) {
  for (const choice of $("faces").children) choice.ariaPressed = String(choice.dataset.slug === slug);
}
