// Values as short texts.

import type { Runtime } from "./api";

export function age(from: string | null | undefined, now: number): string {
  const start = from ? Date.parse(from) : NaN;
  if (Number.isNaN(start)) return "–";
  return duration((now - start) / 1000);
}

/** Seconds in the largest unit that fits, as kubectl shows ages. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  if (s < 86_400) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86_400)}d`;
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function time(at: string | null | undefined): string {
  const date = at ? new Date(at) : null;
  if (!date || Number.isNaN(date.getTime())) return "–";
  return date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** A time of today without its date. */
export function moment(at: string): string {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString() : date.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

/** A name as one line that reads as it is: what would control the text or its direction is shown as its code. */
export function visible(name: string): string {
  return name.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (letter) => `\\u{${letter.codePointAt(0)?.toString(16)}}`);
}

/** Name of an image without its registry and digest, for narrow columns. */
export function shortImage(image: string | null): string {
  if (!image) return "–";
  const name = image.replace(/@sha256:.*/, "");
  return name.slice(name.lastIndexOf("/") + 1);
}

export function factor(value: number): string {
  return `${Number(value.toFixed(2))}×`;
}

const GIB = 2 ** 30;

/** Small numbers have two digits after the point, large ones none. */
const rounded = (value: number) => String(Number(value.toFixed(value < 10 ? 2 : 0)));

/** CPU and memory that a sandbox requests while it has a Pod. */
export function requests({ requested_cpu_millicores: cpu, requested_memory_bytes: memory }: Runtime): string {
  if (cpu == null || memory == null) return "–";
  return `${rounded(cpu / 1000)} cores, ${rounded(memory / GIB)} GiB`;
}

/** Core hours and GiB hours of the present run by its requests; `null` without a run. */
export function cost(runtime: Runtime, now: number): { core: number; gib: number } | null {
  const { requested_cpu_millicores: cpu, requested_memory_bytes: memory, started_at: start } = runtime;
  if (cpu == null || memory == null || !start) return null;
  const hours = Math.max(0, now - Date.parse(start)) / 3_600_000;
  return { core: (hours * cpu) / 1000, gib: (hours * memory) / GIB };
}

/** The cost as one text for each of its units. */
export function costTexts(runtime: Runtime, now: number): [core: string, gib: string] | null {
  const hours = cost(runtime, now);
  return hours && [`${rounded(hours.core)} core h`, `${rounded(hours.gib)} GiB h`];
}

/** Idle time. The last minute is shown as activity: the page asks for no later time than that. */
export function idle({ status, idle_since: since }: Runtime, now: number): string {
  if (status !== "running" || since === undefined) return "–";
  if (since === null || now - Date.parse(since) < 60_000) return "active";
  return age(since, now);
}

export function commandLine(command: string | string[] | null): string {
  if (command === null) return "the image's own";
  return typeof command === "string" ? command : command.map(quote).join(" ");
}

function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
