/** Who hears what a player says, as the server computes it: for the hint beside the draft. */

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
  if (volume === "whisper" && !to) return "Choose whom you whisper to.";
  if (missed) return `${nameOf(missed)} is too far away to hear ${volume === "whisper" ? "a whisper" : "you"}.`;
  const names = reached.filter((name) => name !== to).map(nameOf);
  if (!to) return names.length ? `${listed(names)} will hear this.` : "Nobody is near enough to hear you.";
  if (volume === "whisper") return `Only ${nameOf(to)} will know of this.`;
  return `${nameOf(to)} is told this${names.length ? `; ${listed(names)} will overhear it` : ""}.`;
}

function listed(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0];
}
