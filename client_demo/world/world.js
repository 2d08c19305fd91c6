/** The tavern: one of two players, what is said, and the moment that everything can go back to. */

import { Foremind } from "../foremind.js";
import { failure, listed, say, sayCount, speak } from "../language.js";
import { hearing, hint, nameOf } from "./hearing.js";
import { MINDS, PLAYERS, RANGES, SCENE, WORLD, look, move, positionsIn, prepare, rollBack, save, savedIn } from "./host.js";
import { Mind, make, spoken } from "./minds.js";
import { Tavern } from "./tavern.js";

const LOOK_MS = 1000; // between two looks at the world
const DRAFT_MS = 150; // without a key, until minds are asked what they remember
const QUESTIONS = ["Bram, who had a black lantern mended?", "Mara, who took the attic room?", "Linnet, what is buried under the oak?"];
const $ = (id) => document.getElementById(id);

await speak();
const me = await seat(new URLSearchParams(location.search).get("as"));
const other = PLAYERS.find((name) => name !== me);
const player = new Foremind({ world: WORLD, scene: SCENE, user: { id: me, name: me }, language: navigator.language });
const tavern = new Tavern($("room"), me, { moved: () => attempt(stand), chosen });
const minds = Object.keys(MINDS).map((slug) => [slug, new Mind($("minds"), slug, (on) => tavern.mark(slug, "recalling", on))]);
const said = new Map(); // what is shown, by the id of the event
const replies = new Map(); // what a mind is saying, by its slug
let drafting = null; // timer
let now = Infinity; // in the world's time, when it was last looked at
let saved = Infinity; // when that was, in the world's time
let volume = "say";
let place = null; // where the player stood when the server was told
let standing = Promise.resolve(); // until it knows

/** The player of this tab: the one that is asked for, else the first whom no other tab plays. */
async function seat(wanted) {
  if (PLAYERS.includes(wanted)) return wanted;
  for (const name of PLAYERS) if (await take(`${WORLD} ${name}`)) return name;
  return PLAYERS[0];
}

/** Hold a lock for as long as the page is open; false if another tab does. */
function take(name) {
  if (!navigator.locks) return true;
  return new Promise((done) => {
    navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      done(lock !== null);
      return lock && new Promise(() => {});
    });
  });
}

/** Do something, or say why it could not be done. */
async function attempt(act) {
  try {
    return await act();
  } catch (error) {
    tell(failure(error), true);
    return null;
  }
}

function tell(text, isTrouble = false) {
  $("notice").textContent = text;
  $("notice").classList.toggle("trouble", isTrouble);
}

/** Let the server know where the player stands by now. */
function stand() {
  const here = tavern.positions[me];
  if (place !== String(here)) standing = move(me, here);
  place = String(here);
  return standing;
}

function chosen(name) {
  $("to").value = name;
  drafted();
}

/** Show who will hear the draft; ask those minds what it recalls to them, once the player rests. */
function drafted() {
  if (!tavern.positions[me]) return; // nobody has a place yet
  const to = $("to").value;
  const heard = hearing(tavern.positions, me, to, volume);
  tavern.reach(volume, RANGES[volume], heard.reached);
  $("hint").textContent = hint(heard, to, volume);
  $("closer").hidden = heard.missed === null;
  const aside = volume === "whisper" && !to;
  $("send").disabled = aside || !$("draft").value.trim();
  clearTimeout(drafting);
  drafting = setTimeout(() => attempt(() => askMinds(heard.reached)), DRAFT_MS);
}

/** Ask all minds what they witnessed, and those that will hear the draft what it recalls to them. */
function askMinds(listeners) {
  const draft = $("draft").value.trim();
  return Promise.all(minds.map(([slug, mind]) => mind.ask(listeners.includes(slug) ? draft : "", me)));
}

/** Look at the world: what another tab did is seen here, too. */
async function watch(isUndone = false) {
  const world = await look();
  tavern.place(positionsIn(world), isUndone);
  if (isUndone) place = String(tavern.positions[me]);
  now = Date.parse(world.time);
  saved = Date.parse(savedIn(world)?.time) || Infinity;
  $("roll-back").disabled = saved === Infinity;
  $("clock").textContent = world.time.slice(11, 16);
  showSince();
  await askMinds(hearing(tavern.positions, me, $("to").value, volume).reached);
}

async function watchForever() {
  for (;;) {
    if (!document.hidden) await attempt(watch);
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}

/** Mark what a rollback would undo. */
function showSince() {
  for (const line of said.values()) line.classList.toggle("since", line.at > saved);
}

function show(id, { actor, to, text, volume: how, at, waiting = false, kind = "conversation" }) {
  const line = make("li", { className: `${how}${waiting ? " waiting" : ""}`, at: Date.parse(at) });
  if (kind === "conversation") line.append(make("b", { textContent: `${say("tavern.speaker", { who: manner(actor, to, how) })} ` }));
  line.append(make("span", { className: "text", textContent: text }));
  if (said.has(id)) said.get(id).replaceWith(line);
  else $("said").append(line);
  said.set(id, line);
  $("said").scrollTop = $("said").scrollHeight;
  return line;
}

/** Who speaks, how loud, and to whom, as the player would say it. */
function manner(actor, to, how) {
  if (actor === me) {
    if (to.length) return say(`tavern.you.${how}`, { whom: listed(to.map(nameOf)) });
    return how === "say" ? say("tavern.you") : say(`tavern.you.${how}.all`);
  }
  return to.length === 1 && to[0] === me ? say(`tavern.me.${how}`, { who: nameOf(actor) }) : spoken(actor, to, how);
}

function heard(event) {
  replies.get(event.actor)?.remove();
  replies.delete(event.actor);
  show(event.id, event);
  if (Date.parse(event.at) > now - 2 * LOOK_MS) tavern.say(event.actor, event.text, event.volume); // not of long ago
  showSince();
}

player.on("scene.state", ({ events }) => {
  if (!events) return;
  for (const line of said.values()) line.remove(); // joined anew, or saved, or rolled back
  said.clear();
  for (const event of events) show(event.id, event);
  attempt(() => watch(true));
});
player.on("scene.event", (event) => {
  heard(event);
  drafted();
});
player.on("scene.typing", ({ player: name, typing }) => tavern.mark(name, "typing", typing));
player.on("response.created", ({ companion }) => {
  replies.set(companion, make("li", { className: "waiting" }, make("b", { textContent: `${say("tavern.speaker", { who: nameOf(companion) })} ` })));
  $("said").append(replies.get(companion));
});
player.on("response.output_text.delta", ({ delta }) => [...replies.values()].at(-1)?.append(delta));
player.on("response.done", ({ companion, status, error }) => {
  if (status === "completed") return; // it comes as an event
  replies.get(companion)?.remove();
  replies.delete(companion);
  if (error) tell(error.message, true);
});
player.on("error", ({ error }) => tell(error.message, true));
player.on("state", ({ state, reason }) => {
  if (state === "waiting") tell(`${say("unreachable")}. ${say("trying-again")}`, true);
  if (state === "closed" && reason) tell(reason, true);
  if (state === "open") tell("");
});

$("draft").oninput = () => {
  player.type($("draft").value);
  drafted();
};
$("draft").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("speak").requestSubmit();
  }
};
$("speak").onsubmit = async (event) => {
  event.preventDefault();
  await attempt(stand); // who hears it depends on that
  const [text, to] = [$("draft").value.trim(), $("to").value];
  if (!text || (volume === "whisper" && !to)) return;
  const id = player.send(text, { volume, ...(to && { to }) });
  show(`message:${me}:${id}`, { actor: me, to: to ? [to] : [], text, volume, waiting: true });
  $("draft").value = "";
  drafted();
};
$("to").onchange = drafted;
for (const choice of document.querySelectorAll("input[name=volume]")) {
  choice.onchange = () => {
    volume = choice.value;
    drafted();
  };
}
$("closer").onclick = () => tavern.walkTo($("to").value);
$("room").addEventListener("placed", drafted);
$("save").onclick = () => attempt(async () => {
  await save();
  await watch();
  tell(say("tavern.saved"));
});
$("roll-back").onclick = () => attempt(async () => {
  const undone = [...said.values()].filter((line) => line.classList.contains("since")).length;
  await rollBack();
  await watch(true);
  tell(sayCount("tavern.rolled-back", undone));
});

const [before, after] = say("tavern.player").split("{name}");
$("player").append(before, make("strong", { id: "me", textContent: me }), after);
document.title = `${say("tavern.name")} · Foremind`;
$("clock").title = say("tavern.clock");
$("as-other").textContent = say("tavern.other", { name: other });
$("as-other").href = `?as=${other}`;
$("to").append(...[...Object.keys(MINDS), other].map((id) => make("option", { value: id, textContent: nameOf(id) })));
$("questions").append(...QUESTIONS.map((text) => make("button", { type: "button", textContent: text, onclick: () => {
  $("draft").value = text;
  $("draft").oninput();
  $("draft").focus();
} })));
try {
  // One tab after another: the first one makes the world.
  await (navigator.locks ? navigator.locks.request(`${WORLD} is made`, prepare) : prepare());
  player.connect();
  watchForever();
} catch (error) {
  const isLocked = error.status === 401 || error.status === 403;
  tell(isLocked ? say("tavern.locked") : failure(error), true);
}
