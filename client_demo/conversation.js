/** The conversation: what was said, and what can be done about it. */

import { $, button, make, textOf } from "./elements.js";
import { face } from "./faces.js";
import { say, sayValue } from "./language.js";
import { markdown } from "./markdown.js";
import { isImportedTurn, isSampleTurn } from "./samples.js";

const NOTHING = { id: null, item: null, reply: null, index: 0, count: 1, answering: false };

export class Conversation {
  #act; // what the buttons at turns do
  #companion = null;
  #last = NOTHING; // the last exchange
  #sent = new Map(); // message id -> its element
  #cutOff = null; // the reply to the last message that was being read when the server was lost

  constructor(act) {
    this.#act = act;
    new ResizeObserver(() => this.#toEnd()).observe($("turns"));
  }

  /** The id of the last message. */
  get lastId() {
    return this.#last.id;
  }

  /** Show a conversation as the server knows it, also what was said on another device. */
  open(companion, turns) {
    this.#companion = companion;
    const waiting = [...this.#sent.values()].filter((item) => item.classList.contains("waiting"));
    $("turns").replaceChildren();
    this.#last = NOTHING;
    const own = turns.filter((turn) => !isSampleTurn(turn));
    const sample = turns.filter(isSampleTurn);
    if (sample.length) this.#showSample(sample);
    if (companion.greeting) this.add("companion", companion.greeting);
    const imported = own.findIndex(isImportedTurn);
    own.forEach((turn, place) => {
      if (place === imported) this.#divide(say("imported.note"));
      this.#showTurn(turn);
    });
    if (this.#last.id === this.#cutOff?.id && !this.#last.reply) this.#last.item.after(this.#cutOff.item);
    else this.#cutOff = null;
    this.#showActions();
    $("turns").append(...waiting);
    this.#toEnd();
  }

  /** Show nothing of it any more. */
  clear() {
    $("turns").replaceChildren();
    this.#last = NOTHING;
    this.#cutOff = null;
    this.#sent.clear();
  }

  /** Take back what the server has not confirmed; returns its texts. */
  takeBack() {
    const waiting = [...this.#sent].filter(([, item]) => item.classList.contains("waiting"));
    for (const [id, item] of waiting) {
      this.#sent.delete(id);
      item.remove();
    }
    return waiting.map(([, item]) => textOf(item));
  }

  add(speaker, text, turnId = null) {
    const item = make("li", { className: speaker });
    if (speaker === "companion") item.append(face(this.#companion.slug));
    item.append(make("div", { className: "said" }, make("span", { className: "text" })));
    showText(item, text);
    $("turns").append(item);
    this.identify(item, turnId);
    this.#toEnd();
    return item;
  }

  /** Offer to forget a turn, once it is known which it is. */
  identify(item, turnId) {
    if (!turnId || item.dataset.turn) return;
    item.dataset.turn = turnId;
    this.#offerToForget(item, () => this.#act.forget(turnId, item));
  }

  #offerToForget(item, forget) {
    act(item, say("forget"), say("forget.turn", { text: textOf(item) }), forget).classList.add("forget");
  }

  /** Show what is sent, until the server says that it has it. */
  sending(id, text, { replaces, remember }) {
    if (replaces && replaces === this.#last.id) {
      this.#last.item?.remove();
      this.#last.reply?.remove();
    }
    const item = this.add("user", text);
    item.classList.add("waiting");
    item.classList.toggle("off-record", !remember);
    this.#sent.set(id, item);
  }

  accepted(id, turnId, remembered) {
    const item = this.#sent.get(id);
    if (!item) return;
    item.classList.remove("waiting");
    this.identify(item, turnId);
    if (!remembered) this.note(item, say("note.off-record"));
  }

  /** What was said in another window, or after all. */
  heard(turn) {
    if ($("turns").querySelector(`[data-turn="${turn.turn_id}"]`)) return;
    if (this.#sent.has(turn.message_id)) return this.accepted(turn.message_id, turn.turn_id, true);
    if (turn.reply_to === this.#last.id) this.#last.reply?.remove();
    this.#showTurn(turn);
    this.#dropWhatIsReadAgain();
    this.#showActions();
  }

  /** These turns are no longer: forgotten, edited or replaced, here or in another window. */
  erased(turnIds) {
    for (const turnId of turnIds) {
      const item = $("turns").querySelector(`[data-turn="${turnId}"]`);
      if (!item) continue;
      const next = item.nextElementSibling;
      if (item.matches(".user") && next?.matches(".companion:not([data-turn])")) next.remove(); // read live
      if (item === this.#last.item) this.#last = NOTHING;
      else if (item === this.#last.reply) this.#last = { ...this.#last, reply: null };
      item.remove();
      this.#showActions();
    }
  }

  /** The server was lost while it replied to the last message: what was read of that stays. */
  cutOff(item) {
    item.ariaBusy = "false";
    this.note(item, say("note.cut-off"));
    this.#cutOff = { id: this.#last.id, item };
  }

  /** What became of a message: kept, and why, or not. */
  judged(id, stored, significance, reasons) {
    const item = this.#sent.get(id);
    this.#sent.delete(id);
    if (!item) return;
    this.note(item, say(stored ? "note.remembered" : "note.not-kept"));
    item.querySelector(".note").title = say("note.why", { significance: significance.toFixed(2), reasons: reasons.map((name) => sayValue("reason", name)).join(", ") || "–" });
  }

  refused(id, text, final) {
    const item = this.#sent.get(id);
    if (!item) return false;
    this.note(item, text);
    item.classList.toggle("failed", final);
    return true;
  }

  note(item, text) {
    item.querySelector(".note")?.remove();
    item.querySelector(".said").append(make("span", { className: "note", textContent: text }));
    this.#toEnd();
  }

  /** Another reply stands, or is about to, in place of the one that is shown. */
  replaceReply(messageId, index, count) {
    if (messageId !== this.#last.id) this.#last = { id: messageId, item: this.#sent.get(messageId) ?? null, reply: null };
    this.#last.reply?.remove();
    this.#last = { ...this.#last, reply: null, index, count, answering: true };
    this.#showActions();
  }

  /** This reply stands; a live one is known only as what follows the message. */
  replied(item) {
    this.#last.reply = item;
    this.#last.answering = false;
    this.#dropWhatIsReadAgain();
    this.#showActions();
    const asked = this.#last.item?.dataset.turn;
    if (item && asked && !item.dataset.turn) this.#offerToForget(item, () => this.#act.forgetReply(asked, item));
  }

  #dropWhatIsReadAgain() {
    const { reply } = this.#last;
    if (!this.#cutOff || !reply || !textOf(reply).startsWith(textOf(this.#cutOff.item))) return;
    this.#cutOff.item.remove();
    this.#cutOff = null;
  }

  /** Mark the last message as the one that is edited, if it has this id. */
  markEdited(id) {
    for (const item of $("turns").querySelectorAll(".edited")) item.classList.remove("edited");
    if (id !== null && id === this.#last.id) this.#last.item?.classList.add("edited");
  }

  /** The text of the last message, to be edited. */
  lastText() {
    return textOf(this.#last.item);
  }

  grow(item, delta) {
    showText(item, textOf(item) + delta);
    this.#toEnd();
  }

  #showTurn(turn) {
    const item = this.add(turn.speaker, turn.text, turn.turn_id);
    if (turn.message_id) this.#last = { ...NOTHING, id: turn.message_id, item };
    else if (turn.reply_to === this.#last.id) this.#last = { ...this.#last, reply: item, index: turn.index, count: turn.count };
  }

  #showSample(turns) {
    const erase = button(say("sample.erase"), say("sample.erase"), () => this.#act.eraseSample(), "quiet-act");
    const head = make("li", { className: "divider", id: "sample-note" }, make("span", { textContent: say("sample.note") }), erase);
    $("turns").append(head);
    for (const turn of turns) this.add(turn.speaker, turn.text, turn.turn_id).classList.add("sample");
    this.#divide(say("sample.end"));
  }

  #divide(text) {
    $("turns").append(make("li", { className: "divider", textContent: text }));
  }

  /** What can be done about the last exchange, at its message and its reply. */
  #showActions() {
    for (const shown of document.querySelectorAll("#turns .last-act")) shown.remove();
    const { id, item, reply, index, count, answering } = this.#last;
    if (!id) return;
    if (item) lastAct(item, say("edit"), say("edit.label"), () => this.#act.edit());
    const answered = reply ?? (answering ? null : item); // one without a reply can have one, too
    if (!answered) return;
    if (reply && count > 1) {
      lastAct(reply, "‹", say("reply.before"), () => this.#act.choose(id, index - 1), index === 0);
      tools(reply).append(make("span", { className: "which last-act", textContent: `${index + 1}/${count}` }));
      lastAct(reply, "›", say("reply.after"), () => this.#act.choose(id, index + 1), index + 1 === count);
    }
    lastAct(answered, say("again"), say("again.label"), () => this.#act.regenerate(id));
  }

  /** Scroll to the end, but not past what was said last, if it leaves room for an answer. */
  #toEnd() {
    const turns = $("turns");
    turns.scrollTop = turns.scrollHeight;
    const asked = [...turns.querySelectorAll(".user")].at(-1);
    if (!asked || asked.offsetHeight > 0.75 * turns.clientHeight) return;
    const note = $("sample-note");
    const above = note && getComputedStyle(note).position === "sticky" ? note.offsetHeight : 0;
    turns.scrollTop = Math.min(turns.scrollTop, asked.offsetTop - above);
  }
}

/** Show what is said in a turn; what a language model writes is Markdown. */
function showText(item, text) {
  const shown = item.querySelector(".text");
  shown.source = text;
  shown.replaceChildren(...(item.matches(".companion") ? markdown(text) : [text]));
}

function lastAct(item, text, label, does, disabled = false) {
  const made = act(item, text, label, does);
  made.disabled = disabled;
  made.classList.add("last-act");
}

/** A small button at a turn. */
function act(item, text, label, does) {
  const made = button(text, label, does, "act");
  tools(item).append(made);
  return made;
}

/** The buttons at a turn; on a phone, one that shows them. */
function tools(item) {
  const known = item.querySelector(".acts");
  if (known) return known;
  const row = make("div", { className: "acts" });
  const menu = button("⋯", say("acts"), () => (menu.ariaExpanded = String(row.classList.toggle("open"))), "act menu-of-acts");
  menu.ariaExpanded = "false";
  row.append(menu);
  item.append(row);
  return row;
}
