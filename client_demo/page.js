/** The demo page: who is spoken with, what the server tells, and what is shown of it. */

import { companionList, markFace, showFaces } from "./companions.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Editor } from "./editor.js";
import { $, announce, composes } from "./elements.js";
import { Foremind } from "./foremind.js";
import { Forgetting } from "./forgetting.js";
import { Inspector } from "./inspector.js";
import { forgetUser, introduce, meet } from "./introduction.js";
import { failure, say, sayCount, speak } from "./language.js";
import { Lead } from "./lead.js";
import { watchLengths } from "./lengths.js";
import { attempt, lamp, notice } from "./notice.js";
import { Operator } from "./operator.js";
import { MemoryPanel } from "./panel.js";
import { Race } from "./race.js";
import { Recalled } from "./recalled.js";
import { eraseSample, sampleOf } from "./samples.js";
import { Timeline } from "./timeline.js";
import { Undo } from "./undo.js";

const token = new URLSearchParams(location.hash.slice(1)).get("token");
const ERASED = "the user was erased"; // why the server then closes the connection

let user = null;
let slug = null; // of the companion that is spoken with
let beginnings = 0; // how often a conversation was begun
let speaker = null; // the id of the user, as the server knows it
let mind = null; // its client; null while nothing can be sent
let connected = false;
let sample = null; // its sample past, if the user wanted one
let pauseMs = 500;
let recalling = null; // timer: when the server should begin to recall
let reply = null; // { id, item } while the companion speaks
let editing = null; // the id of the message in whose place the draft is sent
let asked = null; // what was sent last: { id, text }
let model = null; // the name of the language model; null where the stand-in speaks

const panel = new MemoryPanel($("panel"), showAnew, erased);
const timeline = new Timeline($("timeline"), $("summary"));
const lead = new Lead();
const race = new Race();
const inspector = new Inspector();
const undo = new Undo();
const forgetting = new Forgetting(undo, () => mind, attempt, showAnew);
const recalled = new Recalled((memory, item) => forgetting.memory(memory, item), (text) => Boolean(sample?.past.turns.some((turn) => turn.text === text)));
const composer = new Composer(typed, send);
const conversation = new Conversation({
  edit() {
    edit(conversation.lastId);
    composer.fill(conversation.lastText());
  },
  choose: (id, index) => mind?.choose(id, index),
  regenerate: (id) => mind?.regenerate(id),
  forget: (turnId, item) => forgetting.turn(turnId, item),
  forgetReply: (asked, item) => forgetting.reply(asked, item),
  eraseSample: () => attempt(async () => {
    await eraseSample(mind, sample);
    showAnew();
  }),
});

function opened({ companion, turns, pause_ms, limits, model: named, resumed, user: { id } }) {
  connected = true;
  speaker = id;
  model = named;
  lamp("idle");
  composer.opened(limits.max_text_chars);
  if (resumed) return; // what was missed follows
  $("companion").textContent = companion.name;
  document.title = `${companion.name} · Foremind`;
  pauseMs = pause_ms;
  if (reply?.item) conversation.cutOff(reply.item);
  reply = null;
  conversation.open(companion, turns);
  edit(conversation.lastId === editing ? editing : null);
  const questions = $("sample-note") ? sample?.ask ?? [] : [];
  composer.suggest(questions.filter((question) => !turns.some(({ text }) => text === question)));
  lead.idle();
  notice(model === null ? say("notice.offline", { name: companion.name }) : "");
  if (!token) askModels();
  $("open-panel").hidden = false;
  composer.focus();
}

/** Say what is wrong with the model servers, or name those that were found and are not used unasked. */
async function askModels() {
  const { models, found } = await new Operator(() => user.id).models().catch(() => ({ models: [], found: [] }));
  const problems = models.flatMap((probed) => probed.problems);
  if (model !== null && problems.length) notice(problems.join("; "));
  if (model === null) $("notice").append(...found.map(({ program, url }) => ` ${say("notice.found", { program, url })}`));
}

function listen(client) {
  const on = (type, handle) => client.on(type, (event) => client === mind && handle(event));
  on("session.opened", opened);
  on("state", ({ state, code, reason }) => {
    if (state !== "open") connected = false;
    if (state === "connecting" || state === "waiting") lamp("away");
    if (state === "waiting") announce(say("lamp.away"));
    if (state !== "closed" || code === 1000) return;
    if (reason === ERASED) erased(say("notice.erased"));
    else ended(say("notice.closed", { why: reason || code }), say("connect-again"));
  });
  on("context.ready", ready);
  on("message.accepted", ({ id, turn_id, duplicate, context, ready_ms, ahead, remembered }) => {
    conversation.accepted(id, turn_id, remembered);
    if (duplicate) return; // another reply is made to it, or it was stored before a connection was lost
    timeline.accepted(context, ready_ms, ahead);
    if (asked?.id !== id) return;
    lead.accepted(context);
  });
  on("response.created", ({ response_id, message_id, index, count }) => {
    reply = { id: response_id, item: null, isFirst: message_id === asked?.id && index === 0 };
    conversation.replaceReply(message_id, index, count);
    lamp("idle", say("lamp.speaking"));
  });
  on("response.output_text.delta", ({ response_id, delta }) => {
    if (reply?.id !== response_id) return;
    timeline.token();
    if (!reply.item) {
      if (reply.isFirst && model) lead.word();
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
  on("turn.stored", ({ turn }) => conversation.heard(turn));
  on("turn.erased", ({ turn_ids }) => conversation.erased(turn_ids));
  on("memory.stored", ({ message_id, stored, significance, reasons }) => {
    timeline.stored(stored);
    conversation.judged(message_id, stored, significance, reasons.map(({ name }) => name));
  });
  on("error", ({ error }) => {
    const text = error.retryable ? `${error.message} ${say("trying-again")}` : error.message;
    if (!conversation.refused(error.event_id, text, !error.retryable)) notice(error.message);
  });
}

/** Nothing can be sent until the player wants to begin again; what could not be sent is typed again. */
function ended(text, label) {
  clearTimeout(recalling);
  mind?.close();
  mind = null;
  composer.bringBack(conversation.takeBack());
  lamp("closed");
  notice(text, { label, act: () => turnTo(slug) });
  for (const id of ["open-panel", "open-inspector"]) $(id).hidden = true;
}

/** Everything about the user was erased, here or elsewhere: nothing of it is shown or known here. */
function erased(text) {
  ended(text, say("begin-anew"));
  undo.drop();
  for (const shown of [conversation, recalled]) shown.clear();
  composer.suggest([]);
  lead.reset();
  race.leave();
  timeline.reset();
  reply = asked = null;
  edit(null);
  if (!token) forgetUser();
  user = null;
  $("open-editor").hidden = true;
}

/** What is known has changed: show nothing of what may have been forgotten. */
function showAnew() {
  recalled.clear();
  asked = null;
  turnTo(slug);
}

function ready({ draft, memories, timings, trigger }) {
  clearTimeout(recalling);
  timeline.ready(timings, trigger);
  const text = recalled.show(memories);
  if (trigger !== "eager") announce(text);
  if (trigger === "send" || !composer.holds(draft)) return;
  lamp("ready");
  lead.ready();
}

function done({ response_id, message_id, status, error, used }) {
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
    if (message_id === conversation.lastId) conversation.replied(item);
    reply = null;
    const flown = item ? recalled.fly(used, item) : 0;
    if (flown && status === "completed") conversation.note(item, sayCount("note.used", flown));
  }
  if ($("lamp").dataset.state === "idle") lamp("idle");
  const isAnswered = status === "completed" && asked?.id === message_id;
  if (isAnswered && model && !token) race.offer({ mind, companion: slug, name: user.name, text: asked.text, model });
}

function typed(text, isTooLong) {
  clearTimeout(recalling);
  if (!mind) return;
  if (!text.trim() || isTooLong) {
    mind.clear();
    lead.idle();
    if (connected) lamp("idle");
    return;
  }
  timeline.key();
  lead.typing();
  race.leave();
  if (!connected) return; // it is told once there is a connection
  lamp("listening");
  recalling = setTimeout(() => lamp("recalling"), pauseMs);
  mind.type(text);
}

/** Have what is sent next stand in the place of a message; with null, after all of them. */
function edit(id) {
  editing = id;
  $("editing").hidden = id === null;
  conversation.markEdited(id);
}

function leaveEditing() {
  edit(null);
  composer.fill("");
}

/** Send a text; false if that cannot be, so that it stays where it was typed. */
function send(text, how) {
  if (!mind) return void $("notice").querySelector("button")?.focus();
  clearTimeout(recalling);
  let id;
  try {
    id = editing ? mind.edit(editing, text, how) : mind.send(text, how);
  } catch (error) {
    notice(failure(error));
    return false;
  }
  timeline.enter();
  lead.enter();
  conversation.sending(id, text, { ...how, replaces: editing });
  asked = { id, text };
  edit(null);
  return true;
}

/** Speak with a companion, from what the server knows. */
async function begin(chosen) {
  const beginning = ++beginnings;
  mind?.close();
  mind = null;
  composer.bringBack(conversation.takeBack());
  if (chosen !== slug) edit(null);
  connected = false;
  reply = null;
  if (chosen !== slug) {
    recalled.clear();
    lead.reset();
    race.leave();
  }
  slug = chosen;
  if (!token) user ??= await introduce();
  $("open-editor").hidden = Boolean(token);
  const past = user?.sample ? await sampleOf(chosen) : null;
  if (past) await meet(user, chosen, past);
  if (beginning !== beginnings) return; // another one has begun meanwhile
  sample = past;
  markFace(chosen);
  const who = token ? { token } : { user: { id: user.id, name: user.name } };
  mind = new Foremind({ companion: chosen, language: navigator.language, ...who });
  listen(mind);
  mind.connect();
}

/** Speak with the companion whose face is clicked, unless that is so already. */
function choose({ slug: chosen }) {
  if (chosen !== slug || !mind) turnTo(chosen);
}

/** Begin, or say why not. */
async function turnTo(chosen) {
  const beginning = beginnings + 1;
  try {
    await begin(chosen);
  } catch (error) {
    if (beginning === beginnings) ended(failure(error), say("connect-again"));
  }
}

/** In open mode whoever reaches the server may change its companions. */
function offerEditor() {
  const editor = new Editor(() => user.id, (changed) => attempt(async () => {
    const companions = await companionList();
    showFaces(companions, choose);
    const next = companions.find((companion) => companion.slug === (changed ?? slug)) ?? companions[0];
    if (next) await turnTo(next.slug);
  }));
  $("open-editor").onclick = () => editor.open(slug);
}

async function start() {
  await speak();
  watchLengths();
  lamp("away");
  recalled.clear();
  timeline.reset();
  const companions = await companionList(token);
  if (!companions) lamp("closed");
  if (!companions?.length) return notice(say(companions ? "notice.empty" : "notice.token"));
  showFaces(companions, choose);
  if (!token) offerEditor();
  const wanted = new URLSearchParams(location.search).get("companion");
  const first = companions.find((companion) => companion.slug === wanted) ?? companions[0];
  $("companion").textContent = first.name;
  lead.idle();
  await turnTo(first.slug);
}

$("leave-editing").onclick = leaveEditing;
$("open-inspector").onclick = () => mind && inspector.open(mind, $("draft").value.trim() || asked?.text || "");
$("open-panel").onclick = () => mind && panel.open(mind, speaker);
addEventListener("pagehide", () => undo.now()); // whoever leaves takes nothing back
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || composes(event) || document.querySelector("dialog[open]")) return;
  if (reply) mind.cancel(reply.id);
  else if (editing) leaveEditing();
});
attempt(start);
