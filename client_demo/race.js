/** The race: the same question, prepared while it is typed and not, each timed to its first word. */

import { $, make } from "./elements.js";
import { Foremind } from "./foremind.js";
import { failure, milliseconds, number, say, sayValue } from "./language.js";

const ROUNDS = 3; // of each lane; the median counts
const READING_MS = 2000; // after a reply, before the next key
const KEY_MS = 150; // 80 words a minute
const BEFORE_ENTER_MS = 200; // after the last key
const SCALE_MS = 500; // the least that a whole lane stands for
const LANES = ["without", "prepared"];
const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

export class Race {
  #course = null; // the one that is run: { on }
  #runner = null;

  constructor() {
    addEventListener("pagehide", () => this.#runner?.leave());
  }

  /** Offer to race the question that was just answered: `{ mind, companion, name, text, model }`. */
  offer(question) {
    $("race-begin").onclick = () => this.#run(question);
    $("race-begin").hidden = false;
    $("race-result").hidden = true;
    $("race").hidden = false;
  }

  /** The player goes on: nothing competes with what is typed. */
  leave() {
    if (this.#course) this.#course.on = false;
    $("race").hidden = true;
  }

  async #run(question) {
    const course = (this.#course = { on: true });
    const lanes = LANES.map((name) => new Lane(name));
    $("race-begin").hidden = true;
    $("lanes").replaceChildren(...lanes.flatMap(({ parts }) => parts));
    $("race-about").textContent = say("race.getting-ready");
    $("race-result").hidden = false;
    $("draft").focus({ preventScroll: true }); // the button is gone
    const runner = (this.#runner = new Runner(question));
    try {
      await runner.meet(question.mind);
      await runner.ask(say("race.first"));
      for (let round = 1; round <= ROUNDS; round++) {
        for (const lane of lanes) {
          $("race-about").textContent = say("race.round", { n: number(round), of: number(ROUNDS) });
          await pause(READING_MS);
          if (course.on) await lane.time(runner, afresh(question.text, round));
          if (!course.on) return;
          const longest = Math.max(SCALE_MS, ...lanes.map(({ median }) => median));
          for (const each of lanes) each.draw(longest);
        }
      }
      $("race-about").textContent = say("race.about", { model: question.model, where: where(), n: number(ROUNDS) });
    } catch (error) {
      if (course.on) $("race-about").textContent = failure(error);
    } finally {
      await runner.leave();
      if (this.#runner === runner) this.#runner = null;
    }
  }
}

/** One way to ask, and how long its first words took. */
class Lane {
  #name;
  #runs = []; // { ms, ahead }
  #label = make("dt");
  #bar = make("span", { className: "bar" });
  #value = make("dd", { className: "ms" });

  constructor(name) {
    this.#name = name;
    this.#label.textContent = say(`race.${name}`);
    this.#bar.classList.toggle("good", name === "prepared");
    this.#bar.style.width = "0";
  }

  get parts() {
    return [this.#label, make("dd", {}, this.#bar), this.#value];
  }

  /** In milliseconds; 0 before the first round. */
  get median() {
    return this.#middle?.ms ?? 0;
  }

  get #middle() {
    return this.#runs.toSorted((one, other) => one.ms - other.ms)[this.#runs.length >> 1];
  }

  async time(runner, text) {
    this.#value.textContent = say(this.#name === "prepared" ? "race.typing" : "race.waiting");
    this.#runs.push(await runner.ask(text, this.#name === "prepared"));
    const ahead = sayValue("race.ahead", this.#middle.ahead);
    if (this.#name === "prepared") this.#label.textContent = `${say("race.prepared")}${ahead}`;
  }

  draw(longest) {
    if (!this.#runs.length) return;
    this.#bar.style.width = `${Math.max(1, (100 * this.median) / longest)}%`;
    this.#value.textContent = milliseconds(this.median);
  }
}

/** Nobody, who has the player's past with a companion, asks, and is erased. */
class Runner {
  #user;
  #companion;
  #mind;
  #asked = null; // { began, ms, ahead, done, failed }

  constructor({ companion, name }) {
    const random = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
    this.#user = { id: `page-race-${random}`, name };
    this.#companion = companion;
    this.#mind = new Foremind({ companion, user: this.#user, language: navigator.language });
    const on = (type, handle) => this.#mind.on(type, (event) => this.#asked && handle(this.#asked, event));
    on("message.accepted", (asked, { ahead }) => (asked.ahead = ahead));
    on("response.output_text.delta", (asked, { response_id, delta }) => {
      if (asked.ms !== null || !delta.trim()) return;
      asked.ms = performance.now() - asked.began;
      this.#mind.cancel(response_id);
    });
    on("response.done", (asked, { error }) => {
      if (asked.ms === null) asked.failed(new Error(error?.message ?? say("note.failed")));
      else asked.done(asked);
    });
    on("state", (asked, { state, reason }) => state === "closed" && asked.failed(new Error(reason)));
    // A reply may be complete by the time that it is to be stopped.
    on("error", (asked, { error }) => error.param === "response_id" || asked.failed(new Error(error.message)));
  }

  /** Copy what the player has said with the companion, and connect. */
  async meet(mind) {
    const past = await mind.request("GET", "/export");
    const address = `/v1/relationships/import?${new URLSearchParams({ companion: this.#companion, user: this.#user.id })}`;
    const headers = { "content-type": "application/json" };
    const answer = await fetch(address, { method: "POST", headers, body: JSON.stringify(past) });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const opened = new Promise((done) => this.#mind.on("session.opened", done));
    this.#mind.connect();
    await opened;
  }

  /** Ask, and return how long the first word took, `{ ms, ahead }`; the reply is stopped there. */
  async ask(text, prepared = false) {
    if (prepared) {
      const letters = [...text];
      for (let length = 1; length <= letters.length; length++) {
        this.#mind.type(letters.slice(0, length).join(""));
        await pause(KEY_MS);
      }
      await pause(BEFORE_ENTER_MS);
    }
    return new Promise((done, failed) => {
      this.#asked = { began: performance.now(), ms: null, ahead: "nothing", done, failed };
      this.#mind.send(text, { remember: false });
    });
  }

  /** Erase all that there is of it; also while the page is left. */
  async leave() {
    this.#asked = null;
    this.#mind.close();
    const address = `/v1/users/${this.#user.id}?user=${this.#user.id}`;
    await fetch(address, { method: "DELETE", keepalive: true }).catch((error) => console.warn(error));
  }
}

/**
 * A text that says the same and differs from those of other rounds: what was recalled for a text is
 * known for a minute. A letter has another case; where no more letters have one, its end is repeated.
 */
function afresh(text, round) {
  const letters = [...text];
  const cased = letters.flatMap((letter, place) => (letter.toLowerCase() === letter.toUpperCase() ? [] : [place]));
  const place = cased[round];
  if (place === undefined) return text + (/\p{P}$/u.exec(text)?.[0] ?? "…").repeat(round);
  const [lower, upper] = [letters[place].toLowerCase(), letters[place].toUpperCase()];
  return letters.toSpliced(place, 1, letters[place] === upper ? lower : upper).join("");
}

/** From where the model is asked: the model itself may run elsewhere. */
function where() {
  const here = LOOPBACK.includes(location.hostname);
  return here ? say("race.here", { cores: number(navigator.hardwareConcurrency) }) : location.hostname;
}

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
