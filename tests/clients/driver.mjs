// Drives foremind.js as the conformance suite says: commands in, events out, as JSON lines.
// Started with the URL, the options as JSON and perhaps the path of the package ws, whose WebSocket
// is used then; driver.py does the same with the Python client.
import { createInterface } from "node:readline";
import { Foremind } from "../../clients/javascript/lib/foremind.js";

const [url, , ws] = process.argv.slice(2);
const { WebSocket } = ws ? await import(ws) : {};
const {
  token, tokens, language, answerTimeoutMs, impatient, firstRetryMs = 10, world, scene, offline,
} = JSON.parse(process.argv[3]);
const tell = (what) => console.log(JSON.stringify(what));
const next = async () => {
  const following = tokens.length > 1 ? tokens.shift() : tokens[0];
  if (following.fails) throw new Error(following.fails);
  return following.token;
};
const mind = new Foremind({
  ...(world ? { world, scene } : { companion: "wren" }), url, user: { id: "ana" }, token: token ?? (tokens && next), firstRetryMs,
  answerTimeoutMs, language, WebSocket,
});
const dispatch = mind.dispatchEvent.bind(mind);
mind.dispatchEvent = (event) => {
  const { detail } = event;
  if (event.type === "state" && detail.state === "closed") setImmediate(() => process.exit(0));
  tell(event.type === "state" ? { type: "state", ...detail } : detail);
  dispatch(event);
  if (impatient && detail.state === "waiting") mind.connect();
};
if (!offline) mind.connect();
for await (const line of createInterface({ input: process.stdin })) {
  try {
    run(JSON.parse(line));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    tell({ type: "rejected", message: error.message });
  }
}

/** Do what a command says; with `times`, the text is repeated. */
function run({ reopen, type = [], send, how, state, cancel, clear, answer, result, report, times = 1 }) {
  if (reopen) mind.close(), mind.connect();
  for (const text of type) mind.type(text.repeat(times), how);
  if (send !== undefined) mind.send(send.repeat(times), how);
  if (state) mind.setState({ ...state, task: state.task?.repeat(times) });
  if (cancel) mind.cancel(cancel);
  if (answer) mind.answerAction(answer, result);
  if (report) mind.report(report).then((reported) => tell({ reported }), ({ code: failed }) => tell({ failed }));
  if (clear) mind.clear();
}
