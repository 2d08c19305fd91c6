// What a TypeScript program may do with the package, and what the compiler finds wrong.
import { Foremind, type Events } from "foremind";

const mind = new Foremind({ companion: "wren", url: "ws://127.0.0.1:8770/v1/ws" });

const stop: () => void = mind.on("context.ready", ({ draft, trigger, memories, lore }) => {
  const line: string = `${draft} ${memories[0]?.content} ${lore[0]?.name}`;
  if (trigger === "eager") console.log(line);
});
mind.on("state", ({ state, retryMs }) => console.log(state, retryMs ?? 0));
mind.on("error", ({ error }) => console.log(error.code, error.param, error.retryable));
mind.addEventListener("response.output_text.delta", ({ detail }) => console.log(detail.delta));
mind.addEventListener("an event of a later version", (event) => console.log(event.type));

function show(done: Events["response.done"]): string {
  return done.status === "failed" ? done.error!.message : done.text;
}
mind.on("response.done", show);

const id: string = mind.send("Hello", { remember: false, settings: { llm_temperature: 0.2 } });
mind.send("Hello", { settings: { recall_limit: 3, layers_off: ["topics"] } });
mind.setState({ task: "Find the compass", flags: { gold: 3, door: null } });
stop();

const player = new Foremind({ world: "vale", scene: "tavern", url: "ws://127.0.0.1:8770/v1/ws" });
player.send("Who did it?", { to: ["wren"], volume: "whisper" });
player.on("scene.event", ({ actor, text, how }) => console.log(actor, text, how));
player.on("action.requested", ({ id: action, name }) => player.answerAction(action, { done: name }));
const stored: Promise<{ id: string; duplicate: boolean }[]> = player.report([
  { id: "e1", type: "event", text: "The bridge collapsed", scene: "tavern" },
]);
void stored;

// @ts-expect-error - with nobody
new Foremind({ url: "ws://127.0.0.1:8770/v1/ws" });
// @ts-expect-error - a world without a scene
new Foremind({ world: "vale" });
// @ts-expect-error - no such volume
player.send("Who did it?", { volume: "loud" });

// @ts-expect-error - no such setting
mind.send("Hello", { settings: { llm_temprature: 0.2 } });
// @ts-expect-error - no such event
mind.on("context.prepared", () => {});
// @ts-expect-error - no such field
mind.on("memory.stored", (event) => console.log(event.memory));
// @ts-expect-error - no such status
mind.on("response.done", (event) => console.log(event.status === "done", id));
