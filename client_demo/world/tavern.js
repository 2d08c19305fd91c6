/** The room, drawn with Kontra: who stands where, how far a voice reaches, and what is said. */

import { GameLoop, Sprite, clamp, init, initKeys, keyPressed, lerp } from "./kontra.mjs";
import { say } from "../language.js";
import { PLAYERS, ROOM } from "./host.js";
import { nameOf } from "./hearing.js";

const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const SPEED = 4; // steps in a second
const BUBBLE_MS = 6000;
const MAX_BUBBLE = 70; // characters
const WALLS = { left: 0.7, right: ROOM.width - 0.7, top: 2.9, bottom: ROOM.height - 0.5 };
const VOICES = { whisper: "#c9a8ff", say: "#f4c067", shout: "#ff9d7a" };
const FONT = "system-ui, sans-serif";

// One letter a block: hair, skin, eyes, beard, top, front, sleeves, legs, boots.
const FIGURE = ["..hhhh..", ".hhhhhh.", ".hssssh.", ".sesses.", ".bssssb.", "..bbbb..", ".tfffft.", "ttfffftt", "sttfftts", ".ttfftt.", "..llll..", "..l..l..", "..o..o.."];
const LOOKS = {
  "tavern-mara": { h: "#8c3b2a", b: "#e0b08c", t: "#5d7f57", f: "#eee3cf" },
  "tavern-bram": { h: "#3b2b22", b: "#3b2b22", t: "#6b4a34", f: "#8a6a4a" },
  "tavern-linnet": { h: "#d9b24a", b: "#f0c9a4", t: "#7a4fa0", f: "#b58ad6" },
  Ana: { h: "#221c2b", b: "#c99673", t: "#2f7f8f", f: "#3f9fb0" },
  Bo: { h: "#b5651d", b: "#e8bd98", t: "#b0413e", f: "#cf5f5a" },
};
const SHARED = { s: "#e8bd98", e: "#1d1714", l: "#3a3f52", o: "#1f1712" };

export class Tavern {
  #canvas;
  #context;
  #me;
  #moved;
  #people = new Map();
  #positions = {};
  #room = document.createElement("canvas");
  #reach = Infinity;
  #volume = "say";
  #heard = new Set();
  #goal = null; // where the player walks to
  #walking = false;
  #unit = 40; // pixels of a step

  /** `moved` is told where the player stands, `chosen` whom the player clicks on. */
  constructor(canvas, me, { moved, chosen }) {
    this.#me = me;
    this.#moved = moved;
    ({ canvas: this.#canvas, context: this.#context } = init(canvas));
    initKeys();
    addEventListener("keydown", (event) => event.key.startsWith("Arrow") && areArrowsFree() && event.preventDefault());
    canvas.addEventListener("click", (event) => this.#clicked(event, chosen));
    new ResizeObserver(() => this.#fit()).observe(canvas);
    this.#fit();
    let isDrawn = false; // the loop renders more often than it updates
    const update = (passed) => {
      this.#update(passed);
      isDrawn = false;
    };
    const render = () => {
      if (!isDrawn) this.#draw();
      isDrawn = true;
    };
    GameLoop({ fps: CALM.matches ? 10 : 30, blur: true, clearCanvas: false, update, render }).start();
  }

  /** Say where everybody is; the player is where the player walked, unless told otherwise. */
  place(positions, isUndone = false) {
    const before = JSON.stringify(this.#positions);
    for (const [name, position] of Object.entries(positions)) {
      if (name === this.#me && !isUndone && this.#people.has(name)) continue;
      this.#positions[name] = position;
      if (!this.#people.has(name)) this.#people.set(name, this.#person(name, position));
    }
    if (isUndone) this.#goal = null;
    if (JSON.stringify(this.#positions) !== before) this.#tell();
  }

  get positions() {
    return this.#positions;
  }

  /** Show how far the player's voice reaches, and whom. */
  reach(volume, steps, heard) {
    this.#volume = volume;
    this.#reach = steps ?? Infinity;
    this.#heard = new Set(heard);
  }

  /** Show what somebody says. */
  say(name, text, volume) {
    const person = this.#people.get(name);
    if (person) Object.assign(person, { words: text, volume, until: performance.now() + BUBBLE_MS });
  }

  /** Show that somebody types, or remembers something. */
  mark(name, what, on) {
    const person = this.#people.get(name);
    if (person) person[what] = on;
  }

  /** Let the player walk next to somebody. */
  walkTo(name) {
    const [x, y] = this.#positions[name];
    this.#goal = within([x + (this.#positions[this.#me][0] < x ? -1.8 : 1.8), y + 0.9]);
  }

  #person(name, at) {
    const tavern = this;
    const look = { ...SHARED, ...LOOKS[name] };
    return Sprite({ name, look, at, words: "", until: 0, typing: false, recalling: false, render() { tavern.#drawPerson(this); } });
  }

  #clicked({ offsetX, offsetY }, chosen) {
    const step = this.#canvas.clientWidth / ROOM.width;
    const [x, y] = [offsetX / step, offsetY / step];
    const near = (name) => Math.abs(this.#positions[name][0] - x) < 0.8 && y < this.#positions[name][1] + 0.5 && y > this.#positions[name][1] - 2;
    const found = Object.keys(this.#positions).find((name) => name !== this.#me && near(name));
    this.#canvas.focus();
    if (found) {
      chosen(found);
      this.walkTo(found);
    } else this.#goal = within([x, y]);
  }

  #update(passed) {
    const isFree = areArrowsFree();
    const along = (less, more) => (isFree ? Number(keyPressed(more)) - Number(keyPressed(less)) : 0);
    let [dx, dy] = [along("arrowleft", "arrowright"), along("arrowup", "arrowdown")];
    const here = this.#positions[this.#me];
    if (!here) return;
    if (dx || dy) this.#goal = null;
    if (this.#goal) [dx, dy] = [this.#goal[0] - here[0], this.#goal[1] - here[1]];
    const far = Math.hypot(dx, dy);
    const isMoving = far > 0.05;
    if (isMoving) {
      const stride = Math.min(CALM.matches && this.#goal ? far : SPEED * passed, this.#goal ? far : Infinity) / far;
      this.#positions[this.#me] = within([here[0] + dx * stride, here[1] + dy * stride]);
    } else this.#goal = null;
    if (this.#walking && !isMoving) this.#moved(this.#positions[this.#me]);
    if (this.#walking || isMoving) this.#tell();
    this.#walking = isMoving;
    for (const person of this.#people.values()) {
      const share = CALM.matches || person.name === this.#me ? 1 : 0.2;
      person.at = this.#positions[person.name].map((to, axis) => lerp(person.at[axis], to, share));
    }
  }

  #tell() {
    this.#canvas.dispatchEvent(new Event("placed"));
  }

  #fit() {
    const density = Math.min(2, devicePixelRatio || 1);
    const width = Math.max(320, Math.round(this.#canvas.clientWidth * density));
    this.#unit = width / ROOM.width;
    for (const canvas of [this.#canvas, this.#room]) [canvas.width, canvas.height] = [width, Math.round(this.#unit * ROOM.height)];
    drawRoom(this.#room.getContext("2d"), this.#unit);
  }

  #draw() {
    const [pen, unit] = [this.#context, this.#unit];
    pen.drawImage(this.#room, 0, 0);
    drawFire(pen, unit, CALM.matches ? 0 : performance.now());
    const me = this.#people.get(this.#me);
    if (!me) return;
    for (const person of this.#people.values()) [person.x, person.y] = person.at.map((steps) => steps * unit);
    pen.fillStyle = pen.strokeStyle = VOICES[this.#volume];
    pen.lineWidth = unit / 14;
    if (this.#reach < Infinity) {
      pen.beginPath();
      pen.arc(me.x, me.y, this.#reach * unit, 0, 7);
      pen.globalAlpha = 0.09;
      pen.fill();
      pen.globalAlpha = 0.75;
      pen.stroke();
      pen.globalAlpha = 1;
    }
    const inOrder = [...this.#people.values()].sort((one, other) => one.y - other.y);
    for (const person of inOrder) person.render();
    for (const person of inOrder) this.#drawWords(person);
  }

  /** The pen's origin is where the person stands. */
  #drawPerson(person) {
    const [pen, unit] = [this.#context, this.#unit];
    const block = unit / 7;
    pen.fillStyle = "#0006";
    pen.beginPath();
    pen.ellipse(0, 0, unit * 0.5, unit * 0.16, 0, 0, 7);
    pen.fill();
    if (person.recalling) glow(pen, 0, -unit, unit * 1.6, "#ffd76acc");
    FIGURE.forEach((row, down) => [...row].forEach((letter, across) => {
      if (letter === ".") return;
      pen.fillStyle = person.look[letter];
      pen.fillRect((across - 4) * block, (down - 13) * block, block + 0.5, block + 0.5);
    }));
    const size = Math.max(unit * 0.36, 12 * (this.#canvas.width / this.#canvas.clientWidth));
    pen.font = `600 ${size}px ${FONT}`;
    pen.textAlign = "center";
    pen.lineWidth = size / 4;
    pen.strokeStyle = "#1d1714";
    pen.fillStyle = person.name === this.#me ? "#ffffff" : this.#heard.has(person.name) ? VOICES[this.#volume] : "#d8c8b4";
    const shown = person.name === this.#me ? say("tavern.you.marked", { name: person.name }) : nameOf(person.name);
    pen.strokeText(shown, 0, size * 1.15);
    pen.fillText(shown, 0, size * 1.15);
  }

  #drawWords(person) {
    const isShown = person.until > performance.now();
    const words = isShown ? shortened(person.words) : person.typing ? "…" : "";
    if (!words) return;
    const [pen, unit] = [this.#context, this.#unit];
    const size = Math.max(unit * 0.34, 11 * (this.#canvas.width / this.#canvas.clientWidth));
    const volume = isShown ? person.volume : "say";
    pen.font = `${volume === "whisper" ? "italic " : volume === "shout" ? "bold " : ""}${size}px ${FONT}`;
    pen.textAlign = "left";
    const lines = broken(pen, words, unit * 5);
    const width = Math.max(...lines.map((line) => pen.measureText(line).width)) + size;
    const height = lines.length * size * 1.25 + size * 0.6;
    const left = clamp(unit * 0.1, this.#canvas.width - width - unit * 0.1, person.x - width / 2);
    // Below players, above characters, so that neither hides the other.
    const top = PLAYERS.includes(person.name)
      ? Math.min(this.#canvas.height - height - unit * 0.1, person.y + 0.7 * unit)
      : Math.max(unit * 0.1, person.y - 2 * unit - height);
    pen.fillStyle = volume === "whisper" ? "#e6d8ff" : "#fffaf0";
    pen.strokeStyle = VOICES[volume];
    pen.lineWidth = unit / 16;
    pen.beginPath();
    pen.roundRect(left, top, width, height, size / 2);
    pen.fill();
    pen.stroke();
    pen.fillStyle = "#20180f";
    lines.forEach((line, number) => pen.fillText(line, left + size / 2, top + size * 1.25 * (number + 1)));
  }
}

/** Whether arrow keys walk: they move in a text and among choices, and scroll a list that has the focus. */
function areArrowsFree() {
  return !document.activeElement?.matches("input, select, textarea, ol");
}

function within([x, y]) {
  return [clamp(WALLS.left, WALLS.right, x), clamp(WALLS.top, WALLS.bottom, y)].map((value) => Math.round(value * 100) / 100);
}

function shortened(text) {
  return text.length > MAX_BUBBLE ? `${text.slice(0, MAX_BUBBLE - 1)}…` : text;
}

function broken(pen, text, width) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (lines.at(-1) && pen.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

/** A light that fades with the distance; `colour` has an opacity. */
function glow(pen, x, y, radius, colour) {
  pen.fillStyle = pen.createRadialGradient(x, y, 0, x, y, radius);
  pen.fillStyle.addColorStop(0, colour);
  pen.fillStyle.addColorStop(1, `${colour.slice(0, 7)}00`);
  pen.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
}

/** What stands in the room: a colour, then [x, y, width, height] of each. */
const FURNITURE = [
  ["#3d2f2a", [0, 0, 16, 2]],
  ["#463731", ...[0.2, 1.5, 2.8, 4.1, 5.4, 6.7, 8, 9.3, 10.6, 11.9, 13.2, 14.5].map((x) => [x, 0.1, 1.2, 1.8])],
  ["#2b1f18", [0, 1.9, 16, 0.15], [0.5, 1.45, 4.1, 0.12]],
  ["#22314e", [5, 0.4, 1.5, 1.1]], ["#f2ecd0", [5.9, 0.55, 0.25, 0.25]], ["#2b1f18", [5.7, 0.4, 0.08, 1.1]], // the window
  ["#6f9b5f", [0.7, 0.85, 0.22, 0.6]], ["#b5533f", [1.1, 0.85, 0.22, 0.6], [4.1, 0.85, 0.22, 0.6]], ["#c9a04a", [1.5, 0.85, 0.22, 0.6]],
  ["#7b3b2f", [5.4, 4.6, 5, 2.7]], ["#94503c", [5.7, 4.9, 4.4, 2.1]], // the rug
  ["#8b6a45", [0.4, 3.7, 3.3, 0.35]], ["#5a3f28", [0.4, 4.05, 3.3, 0.7]], // the bar
  ["#55504d", [12.1, 0.3, 2.9, 2]], ["#16100d", [12.6, 0.9, 1.9, 1.4]], // the hearth
  ["#54397a", [7, 1.9, 3.2, 1.25]], ["#3c2958", [7, 3.15, 3.2, 0.2]], // the stage
  ...[[2.2, 6.7], [13.4, 6.6]].flatMap(([x, y]) => [
    ["#3b2a1d", [x - 0.1, y + 0.4, 0.25, 0.7], [x + 1.2, y + 0.4, 0.25, 0.7]],
    ["#8b6a45", [x - 0.3, y, 1.95, 0.5]], ["#d9c79c", [x + 0.5, y - 0.15, 0.25, 0.3]],
  ]),
];

function drawRoom(pen, unit) {
  const boxes = (colour, ...places) => {
    pen.fillStyle = colour;
    for (const [x, y, width, height] of places) pen.fillRect(x * unit, y * unit, width * unit + 0.5, height * unit + 0.5);
  };
  boxes("#4a3424", [0, 0, 16, 9]);
  for (let row = 0; row < 14; row++) boxes(row % 2 ? "#6a4a30" : "#61432b", [0, 2 + row * 0.5, 16, 0.47]);
  for (const [colour, ...places] of FURNITURE) boxes(colour, ...places);
}

function drawFire(pen, unit, time) {
  const colours = ["#b8431f", "#ee8a2c", "#ffd76a"];
  for (let number = 0; number < 12; number++) {
    const [layer, flame] = [Math.floor(number / 4), number % 4];
    const height = (0.95 - layer * 0.27) * (0.75 + 0.25 * Math.sin(time / 170 + flame * 2 + layer));
    pen.fillStyle = colours[layer];
    pen.fillRect((12.75 + flame * 0.42 + layer * 0.05) * unit, (2.3 - height) * unit, (0.36 - layer * 0.1) * unit, height * unit);
  }
  glow(pen, 13.5 * unit, 2.3 * unit, 5 * unit, "#ffb34a40");
}
