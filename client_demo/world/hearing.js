/** Who hears what a player says, as the server computes it: for the hint beside the draft. */

import { listed, say } from "../language.js";
import { MINDS, RANGES } from "./host.js";

/** What somebody is called. */
export function nameOf(id) {
  return MINDS[id]?.name ?? id;
}

/** Those whom speech reaches, and those to whom it is said without reaching them. */
export function hearing(positions, speaker, to, volume) {
  const [x, y] = positions[speaker];
  const reach = RANGES[volume] ?? Infinity;
  const others = Object.keys(positions).filter((name) => name !== speaker);
  const near = others.filter((name) => Math.hypot(positions[name][0] - x, positions[name][1] - y) <= reach);
  return {
    reached: volume === "whisper" ? near.filter((name) => name === to) : near,
    missed: to && !near.includes(to) ? to : null,
  };
}

/** That in words. */
export function hint({ reached, missed }, to, volume) {
  const isWhisper = volume === "whisper";
  if (isWhisper && !to) return say("tavern.hint.whom");
  if (missed) return say(isWhisper ? "tavern.hint.far.whisper" : "tavern.hint.far", { name: nameOf(missed) });
  const name = nameOf(to);
  if (isWhisper) return say("tavern.hint.only", { name });
  const others = reached.filter((other) => other !== to).map(nameOf);
  if (others.length) return say(to ? "tavern.hint.overheard" : "tavern.hint.heard", { name, names: listed(others) });
  return to ? say("tavern.hint.told", { name }) : say("tavern.hint.nobody");
}
