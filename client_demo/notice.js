/** The lamp and the line above the conversation: how things stand, and what can be done about it. */

import { $, button } from "./elements.js";
import { failure, say } from "./language.js";

export function lamp(state, text = say(`lamp.${state}`)) {
  $("lamp").dataset.state = state;
  $("lamp-text").textContent = text;
}

/** Say something; with `deed`, `{ label, act }`, there is a button for it. */
export function notice(text, deed = null) {
  $("notice").replaceChildren(text);
  if (deed) $("notice").append(" ", button(deed.label, deed.label, deed.act, "quiet-act"));
  $("notice").hidden = !text;
}

/** Do something, or say why it could not be done. */
export async function attempt(act) {
  try {
    await act();
  } catch (error) {
    notice(failure(error));
    return false;
  }
  return true;
}
