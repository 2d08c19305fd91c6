/** The demo page: who is spoken with, what the server tells, and what is shown of it. */

import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Editor } from "./editor.js";
import { $, announce, button } from "./elements.js";
import { face } from "./faces.js";
import { Foremind } from "./foremind.js";
import { Forgetting } from "./forgetting.js";
import { introduce, meet } from "./introduction.js";
import { say, speak } from "./language.js";
import { Lead } from "./lead.js";
import { MemoryPanel } from "./panel.js";
import { Recalled } from "./recalled.js";
import { eraseSample, sampleOf } from "./samples.js";
import { Timeline } from "./timeline.js";
import { Undo } from "./undo.js";

const token = new URLSearchParams(location.hash.slice(1)).get("token");
const FIRST = "wren"; // of the example companions
const COMPARISONS = 3; // times that a context is built without preparation; the fastest counts

let user = null;
let slug = null; // of the companion that is spoken with
let beginnings = 0; // how often a conversation was begun
let mind = null;
let sample = null; // its sample past, if the user wanted one
let pauseMs = 500;
let recalling = null; // timer: when the server should begin to recall
let reply = null; // { id, item } while the companion speaks
let editing = null; // the id of the message in whose place the draft is sent
let asked = null; // what was sent last: { id, text, remember, context, readyMs, answered, judged }

const panel = new MemoryPanel($("panel"));
const timeline = new Timeline($("timeline"), $("summary"));
const lead = new Lead();
const undo = new Undo();
const forgetting = new Forgetting(undo, () => mind, attempt, () => {
  recalled.clear();
  begin(slug);
});
const recalled = new Recalled((memory, item) => forgetting.memory(memory, item), (text) => Boolean(sample?.past.turns.some((turn) => turn.text === text)));
const composer = new Composer(typed, send);
const conversation = new Conversation({
  edit() {
    editing = conversation.lastId;
    composer.fill(conversation.lastText());
  },
  choose: (id, index) => mind?.choose(id, index),
  regenerate: (id) => mind?.regenerate(id),
  forget: (turnId, item) => forgetting.turn(turnId, item),
  forgetReply: (asked, item) => forgetting.reply(asked, item),
  eraseSample: () => attempt(async () => {
    await eraseSample(mind, sample);
    begin(slug);
  }),
});

/** A text as the server compares drafts. */
function plain(text) {
  return text.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
}

function lamp(state, text = say(`lamp.${state}`)) {
  $("lamp").dataset.state = state;
  $("lamp-text").textContent = text;
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

/** Do something, or say why it could not be done. */
async function attempt(act) {
  try {
    await act();
  } catch (error) {
    notice(say("failed", { why: error.message }));
    return false;
  }
  return true;
}

function opened({ companion, turns, pause_ms, model, resumed }) {
  lamp("idle");
  if (resumed) return; // what was missed follows
  $("companion").textContent = companion.name;
  document.title = `${companion.name} · Foremind`;
  pauseMs = pause_ms;
  reply = null;
  conversation.open(companion, turns);
  const questions = $("sample-note") ? sample?.ask ?? [] : [];
  composer.suggest(questions.filter((question) => !turns.some(({ text }) => text === question)));
  notice(model === null ? say("notice.offline", { name: companion.name }) : "");
  $("open-panel").hidden = false;
  composer.focus();
}

function listen(client) {
  const on = (type, handle) => client.on(type, (event) => client === mind && handle(event));
  on("session.opened", opened);
  on("state", ({ state, code, reason }) => {
    if (state === "connecting" || state === "waiting") lamp("away");
    if (state === "waiting") announce(say("lamp.away"));
    if (state === "closed" && code !== 1000) {
      lamp("away", say("lamp.closed"));
      notice(say("notice.closed", { why: reason || code }));
    }
  });
  on("context.ready", ready);
  on("message.accepted", ({ id, turn_id, context, ready_ms, ahead, remembered }) => {
    conversation.accepted(id, turn_id, remembered);
    timeline.accepted(context, ready_ms, ahead);
    if (asked?.id === id) lead.accepted(context);
    if (asked?.id === id) Object.assign(asked, { readyMs: ready_ms, context });
  });
  on("response.created", ({ response_id, message_id, index, count }) => {
    reply = { id: response_id, item: null };
    conversation.replaceReply(message_id, index, count);
    lamp("idle", say("lamp.speaking"));
  });
  on("response.output_text.delta", ({ response_id, delta }) => {
    if (reply?.id !== response_id) return;
    timeline.token();
    if (!reply.item) {
      reply.item = conversation.add("companion", "");
      reply.item.ariaBusy = "true"; // read out when it is complete
    }
    conversation.grow(reply.item, delta);
  });
  on("response.done", done);
  on("response.chosen", ({ message_id, turn }) => {
    conversation.replaceReply(message_id, turn.index, turn.count);
    conversation.replied(conversation.add("companion", turn.text, turn.turn_id));
  });
  on("turn.stored", ({ turn }) => conversation.add(turn.speaker, turn.text, turn.turn_id));
  on("memory.stored", ({ message_id, stored, significance, reasons }) => {
    timeline.stored(stored);
    conversation.judged(message_id, stored, significance, reasons.map(({ name }) => name));
    if (asked?.id === message_id) compare({ judged: true });
  });
  on("error", ({ error }) => {
    const text = error.retryable ? `${error.message} ${say("trying-again")}` : error.message;
    if (!conversation.refused(error.event_id, text, !error.retryable)) notice(error.message);
  });
}

function ready({ draft, memories, timings, trigger }) {
  clearTimeout(recalling);
  timeline.ready(timings, trigger);
  const text = recalled.show(memories);
  if (trigger !== "eager") announce(text);
  if (trigger === "send" || plain(draft) !== plain($("draft").value)) return;
  lamp("ready");
  lead.ready();
}

function done({ response_id, message_id, status, error }) {
  const mine = reply?.id === response_id;
  const item = (mine && reply.item) || (status === "failed" ? conversation.add("companion", "…") : null);
  if (status === "failed") {
    item.classList.add("failed");
    conversation.note(item, error?.message ?? say("note.failed"));
  } else if (status === "cancelled" && item) {
    conversation.note(item, say("note.stopped"));
  }
  if (item) item.ariaBusy = "false";
  if (mine) {
    conversation.replied(item);
    reply = null;
  }
  if ($("lamp").dataset.state === "idle") lamp("idle");
  if (status === "completed" && asked?.id === message_id) compare({ answered: true });
}

/**
 * Once a message is answered and judged, and the server has nothing else to do for it, have the same
 * context built from nothing: without preparation, that would have been left to do at Enter. Of a
 * context that was refreshed then, only the vector served.
 */
async function compare(done) {
  const spoken = mind;
  const question = Object.assign(asked, done);
  if (question.context === "miss" || !question.answered || !(question.judged || !question.remember)) return;
  const path = `/context?draft=${encodeURIComponent(question.text)}`;
  let fastest = Infinity;
  for (let time = 0; time < COMPARISONS; time++) {
    const { timings } = await spoken.request("GET", path).catch(() => ({ timings: null }));
    if (!timings || question !== asked) return;
    fastest = Math.min(fastest, question.context === "hit" ? timings.total_ms : timings.embed_ms);
  }
  lead.compare(question.readyMs, question.readyMs + fastest);
}

function typed(text) {
  clearTimeout(recalling);
  if (!text.trim()) {
    editing = null;
    mind?.clear();
    lead.idle();
    return lamp("idle");
  }
  timeline.key();
  lead.typing();
  lamp("listening");
  recalling = setTimeout(() => lamp("recalling"), pauseMs);
  mind?.type(text);
}

function send(text, how) {
  if (!mind) return false;
  clearTimeout(recalling);
  timeline.enter();
  lead.enter();
  const id = editing ? mind.edit(editing, text, how) : mind.send(text, how);
  conversation.sending(id, text, { ...how, replaces: editing });
  asked = { id, text, remember: how.remember };
  editing = null;
  return true;
}

/** Speak with a companion, from what the server knows. */
async function begin(chosen) {
  const beginning = ++beginnings;
  mind?.close();
  mind = null;
  reply = null;
  if (chosen !== slug) {
    recalled.clear();
    lead.reset();
  }
  slug = chosen;
  const past = user?.sample ? await sampleOf(chosen) : null;
  if (past) await meet(user, chosen, past);
  if (beginning !== beginnings) return; // another one has begun meanwhile
  sample = past;
  for (const choice of $("faces").children) choice.ariaPressed = String(choice.dataset.slug === chosen);
  mind = new Foremind(token ? { companion: chosen, token } : { companion: chosen, user: { id: user.id, name: user.name } });
  listen(mind);
  mind.connect();
}

/** The companions that may be spoken with, the first example first. */
async function companionList() {
  const answer = await fetch("/v1/companions", token ? { headers: { authorization: `Bearer ${token}` } } : {});
  if (answer.ok) return (await answer.json()).sort((one, other) => (other.slug === FIRST) - (one.slug === FIRST));
  lamp("away", say("lamp.closed"));
  notice(say("notice.token"));
  return null;
}

function showFaces(companions) {
  const choices = companions.map(({ slug: name, name: title }) => {
    const choice = button("", title, () => name !== slug && begin(name), "choice-of-face");
    choice.title = title;
    choice.dataset.slug = name;
    choice.append(face(name));
    return choice;
  });
  $("faces").replaceChildren(...choices);
}

/** In open mode whoever reaches the server may change its companions. */
function offerEditor() {
  const editor = new Editor(user.id, async (changed) => {
    const companions = await companionList();
    showFaces(companions);
    const next = companions.find((companion) => companion.slug === (changed ?? slug)) ?? companions[0];
    if (next) begin(next.slug);
  });
  $("open-editor").onclick = () => editor.open(slug);
  $("open-editor").hidden = false;
}

async function start() {
  await speak();
  lamp("away");
  recalled.clear();
  lead.idle();
  timeline.reset();
  const companions = await companionList();
  if (!companions) return;
  if (!companions.length) return notice(say("notice.empty"));
  showFaces(companions);
  if (!token) user = await introduce();
  if (!token) offerEditor();
  const wanted = new URLSearchParams(location.search).get("companion");
  const first = companions.find((companion) => companion.slug === wanted) ?? companions[0];
  $("companion").textContent = first.name;
  await begin(first.slug);
}

$("open-panel").onclick = () => mind && panel.open(mind);
addEventListener("pagehide", () => undo.now()); // whoever leaves takes nothing back
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && reply) mind.cancel(reply.id);
});
start();
