/** Sample pasts of the example companions: made up, marked as such, and erased like anything else. */

const NAMES = new Set(["wren", "odile", "saffi", "tock"]);
const MARK = "sample-"; // how the ids of their messages begin
const MOMENT = /^\d{4}-\d\d-\d\dT/;

/** Whether a turn, or the message that it answers, is of a sample past. */
export function isSampleTurn({ message_id: own, reply_to: asked }) {
  return (own ?? asked ?? "").startsWith(MARK);
}

/** Whether a turn, or the message that it answers, came from another program. */
export function isImportedTurn({ message_id: own, reply_to: asked }) {
  return (own ?? asked ?? "").startsWith("import-");
}

/** The sample of a companion: questions to ask, and a past as an export; null if there is none. */
export async function sampleOf(slug) {
  return NAMES.has(slug) ? (await fetch(`samples/${slug}.json`)).json() : null;
}

/** Give a new user a sample past with a companion. */
export async function importSample(sample, slug, user) {
  const past = { ...movedToNow(sample.past), user_name: user.name };
  const query = new URLSearchParams({ companion: slug, user: user.id });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`/v1/relationships/import?${query}`, { method: "POST", headers, body: JSON.stringify(past) });
  if (!answer.ok) throw new Error((await answer.json()).error.message);
}

/** Erase a sample past, by the sessions that it came in. */
export async function eraseSample(mind, sample) {
  const said = new Set(sample.past.turns.map(({ text }) => text));
  const { sessions } = await mind.request("GET", "/sessions");
  for (const { id } of sessions) {
    const session = encodeURIComponent(id);
    const { turns } = await mind.request("GET", `/turns?session=${session}&limit=1`);
    if (turns.length && said.has(turns[0].text)) await mind.request("DELETE", `/memories?session=${session}`);
  }
}

/** An export whose moments are as long ago as they were when it was made. */
function movedToNow(past) {
  const later = Date.now() - Date.parse(past.exported_at);
  const moved = (_, value) => (typeof value === "string" && MOMENT.test(value) ? new Date(Date.parse(value) + later).toISOString() : value);
  return JSON.parse(JSON.stringify(past), moved);
}
