/** The game server's part of the tavern: it puts everybody in their places, saves and rolls back. */

export const WORLD = "the-lantern";
export const SCENE = "taproom";
export const PLAYERS = ["Ana", "Bo"];
/** The characters, by the slugs of their companions. */
export const MINDS = {
  "tavern-mara": { name: "Mara", trade: "innkeeper", card: "world/cards/mara.json" },
  "tavern-bram": { name: "Bram", trade: "smith", card: "world/cards/bram.json" },
  "tavern-linnet": { name: "Linnet", trade: "bard", card: "world/cards/linnet.json" },
};
/** How far speech reaches, in steps; a shout reaches everybody. */
export const RANGES = { whisper: 2.5, say: 7.5, shout: null };
export const ROOM = { width: 16, height: 9 };

const SAVE = "before";
const ADMIN = "/v1/admin/companions";
const WORLD_PATH = `/v1/worlds/${WORLD}`;
const PLACES = {
  "tavern-mara": [2.6, 3.5], "tavern-bram": [13.2, 4.1], "tavern-linnet": [8.6, 2.9],
  Ana: [6.4, 5.8], Bo: [10.6, 6.8],
};
// What only some of them saw, so that there is something to ask about.
const BEFORE = [
  { text: "A storm took the bridge over the Corgo; nobody can cross tonight", audience: [...Object.keys(MINDS), ...PLAYERS] },
  { text: "A hooded guest paid three nights ahead for the attic room and asked for no candle", audience: ["tavern-mara"] },
  { text: "A stranger had a black lantern mended and paid in old silver", audience: ["tavern-bram"] },
  { text: "The miller buried a chest under the oak at dusk", audience: ["tavern-linnet"] },
];

/** Make the world if it is not there yet, and what belongs to it; return it. */
export async function prepare() {
  const [{ companions }, { models }] = await Promise.all([ask("GET", ADMIN), ask("GET", "/v1/admin/models")]);
  // The stand-in for a model quotes what is recalled, but not what stands in the history already.
  const layers_off = models.length ? null : ["working"];
  for (const [slug, { name, card }] of Object.entries(MINDS)) {
    const known = companions.find((companion) => companion.slug === slug);
    if (known && String(known.settings.layers_off ?? "") === String(layers_off ?? "")) continue;
    const made = await (await fetch(card)).json();
    // Of all that they meet here they make one memory, not one for each player.
    await ask("PUT", `${ADMIN}/${slug}`, { name, persona: made.data.description, settings: { mind: "world", layers_off } });
    await ask("PUT", `${ADMIN}/${slug}/card`, made);
  }
  const world = await ask("PUT", WORLD_PATH, { ranges: RANGES });
  if (world.scenes.some(({ name }) => name === SCENE)) return world;
  await ask("PUT", WORLD_PATH, { clock: { time: "1203-10-05T19:00:00Z" } });
  await put(PLACES);
  const events = BEFORE.map((event, index) => ({ id: `before-${index}`, type: "event", ...event }));
  await ask("POST", `${WORLD_PATH}/events`, { events });
  return look();
}

/** The world as it is: its time, its saves, and who is where. */
export function look() {
  return ask("GET", WORLD_PATH);
}

/** Where everybody is, by name. */
export function positionsIn(world) {
  return { ...PLACES, ...world.scenes.find(({ name }) => name === SCENE)?.positions };
}

/** The moment that was saved, if any. */
export function savedIn(world) {
  return world.saves.find(({ name }) => name === SAVE);
}

/** Let somebody stand elsewhere; whoever else is there stays where they are. */
export async function move(name, position) {
  await put({ ...positionsIn(await look()), [name]: position });
}

/** What a mind witnessed, and what a player's draft recalls to it. */
export function mindOf(slug, draft, player) {
  const query = new URLSearchParams({ draft, player, events: "40" });
  return ask("GET", `${WORLD_PATH}/minds/${slug}/context?${query}`);
}

export function save() {
  return ask("POST", `${WORLD_PATH}/saves`, { name: SAVE });
}

export function rollBack() {
  return ask("POST", `${WORLD_PATH}/rollback`, { name: SAVE });
}

function put(positions) {
  const scene = { place: "the taproom", players: PLAYERS, minds: Object.keys(MINDS), positions };
  return ask("PUT", `${WORLD_PATH}/scenes/${SCENE}`, scene);
}

async function ask(method, path, body) {
  const headers = body ? { "content-type": "application/json" } : {};
  const address = new URL(path, location.origin);
  // In open mode operators say who they are, too.
  if (path.startsWith("/v1/admin/")) address.searchParams.set("user", PLAYERS[0]);
  const answer = await fetch(address, { method, headers, body: body && JSON.stringify(body) });
  const result = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(result.error.message), { status: answer.status });
  return result;
}
