/** The demo page: a conversation, a lamp, a timeline and what was recalled. */

import { Foremind } from "./foremind.js";
import { MemoryPanel } from "./panel.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const panel = new MemoryPanel($("panel"));
const timeline = new Timeline($("timeline"), $("summary"));
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const LAMP = {
  away: "connecting",
  idle: "here",
  listening: "listening",
  recalling: "recalling",
  ready: "ready",
};

let mind = null;
let pauseMs = 500;
let recalling = null; // timer: when the server should begin to recall
let reply = null; // { id, element } while the companion speaks
let last = { id: null, item: null, reply: null, index: 0, count: 1 }; // the last exchange
let editing = null; // the id of the message in whose place the draft is sent
const sent = new Map(); // message id -> its element

/** A text as the server compares drafts. */
function plain(text) {
  return text.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
}

function lamp(state, text = LAMP[state]) {
  $("lamp").dataset.state = state;
  $("lamp-text").textContent = text;
}

function addTurn(speaker, text) {
  const item = document.createElement("li");
  item.className = speaker;
  item.append(Object.assign(document.createElement("span"), { className: "text", textContent: text }));
  $("turns").append(item);
  toEnd();
  return item;
}

function toEnd() {
  $("turns").lastElementChild?.scrollIntoView({ block: "end" });
}

function note(item, text) {
  item.querySelector(".note")?.remove();
  item.append(Object.assign(document.createElement("span"), { className: "note", textContent: text }));
  toEnd();
}

/** A small button at a turn. */
function action(item, label, name, act, disabled = false) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "act", textContent: label, disabled });
  button.setAttribute("aria-label", name);
  button.onclick = act;
  item.append(button);
}

/** What can be done about the last exchange, at its message and its reply. */
function showActions() {
  for (const button of document.querySelectorAll("#turns .act, #turns .which")) button.remove();
  const { id, item, reply: answer, index, count } = last;
  if (!id) return;
  if (item) action(item, "edit", "Edit your last message", edit);
  if (!answer) return;
  if (count > 1) {
    action(answer, "‹", "The reply before", () => mind.choose(id, index - 1), index === 0);
    answer.append(Object.assign(document.createElement("span"), { className: "which", textContent: `${index + 1}/${count}` }));
    action(answer, "›", "The reply after", () => mind.choose(id, index + 1), index + 1 === count);
  }
  action(answer, "again", "Another reply", () => mind.regenerate(id));
}

function edit() {
  editing = last.id;
  $("draft").value = last.item.querySelector(".text").textContent;
  typed();
  $("draft").focus();
}

/** Another reply stands, or is about to, in place of the one that is shown. */
function replaceReply(messageId, index, count) {
  if (messageId !== last.id) last = { id: messageId, item: sent.get(messageId) ?? null, reply: null };
  last.reply?.remove();
  last = { ...last, reply: null, index, count };
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

/** Forgets a memory for good; what is shown of it goes as well. */
function forgetButton(memory, item) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Forget" });
  button.setAttribute("aria-label", `Forget: ${memory.content}`);
  button.onclick = async () => {
    button.disabled = true;
    try {
      await mind.forget(memory.id);
    } catch (error) {
      button.disabled = false;
      return notice(`Could not forget it: ${error.message}`);
    }
    item.remove();
    for (const turn of [...$("turns").children]) {
      if (turn.querySelector(".text")?.textContent.includes(memory.content)) turn.remove();
    }
  };
  return button;
}

function showMemories(draft, memories) {
  $("recalled-for").textContent = memories.length ? `for “${draft}”` : `Nothing for “${draft}”.`;
  $("memories").replaceChildren(
    ...memories.map((memory) => {
      const item = document.createElement("li");
      const who = memory.speaker === "user" ? "you said" : "the companion said";
      const about = `${memory.age}, ${who} · score ${memory.score.toFixed(2)} · significance ${memory.significance.toFixed(2)}`;
      item.append(memory.content, Object.assign(document.createElement("small"), { textContent: about }));
      item.append(forgetButton(memory, item));
      return item;
    }),
  );
}

function opened({ companion, turns, pause_ms, model, user, resumed }) {
  if (resumed) return lamp("idle", `here, with ${user.name}`); // what was missed follows
  $("companion").textContent = companion.name;
  document.title = `${companion.name} · Foremind`;
  pauseMs = pause_ms;
  // Shown anew: the server knows what was said, also on another device.
  const pending = [...sent.values()].filter((item) => item.classList.contains("waiting"));
  $("turns").replaceChildren();
  reply = null;
  if (companion.greeting) addTurn("companion", companion.greeting);
  last = { id: null, item: null, reply: null, index: 0, count: 1 };
  for (const turn of turns) {
    const item = addTurn(turn.speaker, turn.text);
    if (turn.message_id) last = { id: turn.message_id, item, reply: null, index: 0, count: 1 };
    else if (turn.reply_to === last.id) last = { ...last, reply: item, index: turn.index, count: turn.count };
  }
  showActions();
  $("turns").append(...pending);
  notice(
    model === null
      ? `No language model is configured: ${companion.name} only quotes what it recalls, with the built-in offline model.`
      : "",
  );
  $("open-panel").hidden = false;
  lamp("idle", `here, with ${user.name}`);
  $("draft").focus();
}

function listen(client) {
  const on = (type, handle) => client.addEventListener(type, ({ detail }) => handle(detail));
  on("session.opened", opened);
  on("state", ({ state, code, reason }) => {
    if (state === "connecting" || state === "waiting") lamp("away");
    if (state === "closed" && code !== 1000) {
      lamp("away", "not connected");
      notice(`The server closed the connection: ${reason || code}.`);
    }
  });
  on("context.ready", ({ draft, memories, timings, trigger }) => {
    clearTimeout(recalling);
    timeline.ready(timings, trigger);
    showMemories(draft, memories);
    if (trigger !== "send" && plain(draft) === plain($("draft").value)) lamp("ready");
  });
  on("message.accepted", ({ id, context, ready_ms, ahead }) => {
    sent.get(id)?.classList.remove("waiting");
    timeline.accepted(context, ready_ms, ahead);
  });
  on("response.created", ({ response_id, message_id, index, count }) => {
    reply = { id: response_id, element: null };
    replaceReply(message_id, index, count);
    showActions();
    lamp("idle", "speaking");
  });
  on("response.output_text.delta", ({ response_id, delta }) => {
    if (reply?.id !== response_id) return;
    timeline.token();
    reply.element ??= addTurn("companion", "");
    reply.element.querySelector(".text").textContent += delta;
    toEnd();
  });
  on("response.done", ({ response_id, status, error }) => {
    if (status === "failed") {
      const item = (reply?.id === response_id && reply.element) || addTurn("companion", "…");
      item.classList.add("failed");
      note(item, error?.message ?? "The reply failed.");
    } else if (status === "cancelled" && reply?.element) {
      note(reply.element, "stopped");
    }
    if (reply?.id === response_id) {
      last.reply = reply.element;
      reply = null;
      showActions();
    }
    if ($("lamp").dataset.state === "idle") lamp("idle");
  });
  on("response.chosen", ({ message_id, turn }) => {
    replaceReply(message_id, turn.index, turn.count);
    last.reply = addTurn("companion", turn.text);
    showActions();
  });
  on("turn.stored", ({ turn }) => addTurn(turn.speaker, turn.text));
  on("memory.stored", ({ message_id, stored, significance, reasons }) => {
    timeline.stored(stored);
    const item = sent.get(message_id);
    const why = reasons.length ? ` · ${reasons.map(({ name }) => name).join(", ")}` : "";
    if (item) note(item, `${stored ? "remembered" : "not kept"} · significance ${significance.toFixed(2)}${why}`);
    sent.delete(message_id);
  });
  on("error", ({ error }) => {
    const item = sent.get(error.event_id);
    if (!item) return notice(error.message);
    note(item, error.retryable ? `${error.message} Trying again …` : error.message);
    item.classList.toggle("failed", !error.retryable);
  });
}

function typed() {
  const draft = $("draft");
  draft.style.height = "auto";
  draft.style.height = `${draft.scrollHeight}px`;
  clearTimeout(recalling);
  if (!draft.value.trim()) {
    editing = null;
    mind?.clear();
    lamp("idle");
    return;
  }
  timeline.key();
  lamp("listening");
  recalling = setTimeout(() => lamp("recalling"), pauseMs);
  mind?.type(draft.value);
}

function send() {
  const text = $("draft").value;
  if (!text.trim() || !mind) return;
  clearTimeout(recalling);
  timeline.enter();
  const id = editing ? mind.edit(editing, text) : mind.send(text);
  if (editing && editing === last.id) {
    last.item?.remove();
    last.reply?.remove();
  }
  editing = null;
  const item = addTurn("user", text);
  item.classList.add("waiting");
  sent.set(id, item);
  $("draft").value = "";
  $("draft").style.height = "auto";
}

function begin(companion, user) {
  mind?.close();
  mind = new Foremind(token ? { companion, token } : { companion, user });
  listen(mind);
  mind.connect();
}

/** Who is speaking: remembered by this browser, asked for once. */
async function introduce() {
  if (token) return null;
  const known = localStorage.getItem("foremind.user");
  if (known) return JSON.parse(known);
  $("introduce").showModal();
  await new Promise((done) => $("introduce").addEventListener("close", done, { once: true }));
  const random = crypto.getRandomValues(new Uint32Array(2));
  const user = { id: `page-${random[0].toString(36)}${random[1].toString(36)}`, name: $("name").value.trim() || "Friend" };
  localStorage.setItem("foremind.user", JSON.stringify(user));
  return user;
}

async function start() {
  const answer = await fetch("/v1/companions", token ? { headers: { authorization: `Bearer ${token}` } } : {});
  if (!answer.ok) {
    lamp("away", "not connected");
    notice("This server requires a token: open the page with #token=… at the end of its address.");
    return;
  }
  const companions = await answer.json();
  if (!companions.length) {
    notice("This server has no companion yet: add one with foremind companions put FILE.");
    return;
  }
  const wanted = new URLSearchParams(location.search).get("companion");
  const first = companions.find(({ slug }) => slug === wanted) ?? companions[0];
  $("choose").hidden = companions.length < 2;
  $("companions").append(...companions.map(({ slug, name }) => new Option(name, slug, false, slug === first.slug)));
  $("companion").textContent = first.name;
  const user = await introduce();
  $("companions").onchange = ({ target }) => begin(target.value, user);
  begin(first.slug, user);
}

$("open-panel").onclick = () => mind && panel.open(mind);
$("draft").addEventListener("input", typed);
$("draft").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && reply) mind.cancel(reply.id);
});
$("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
  $("draft").focus();
});
start();
