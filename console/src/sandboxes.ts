// The sandboxes of the caller, kept up to date by events, or by polling where the gateway has none.

import { type Runtime, api, logOut } from "./api";
import { CallError, describe } from "./errors";
import { type StreamEvent, readEvents } from "./event_stream";
import { Store, frame } from "./store";

/** A change of a sandbox that this page has seen, or that the API has a time of. */
export interface Change {
  at: string;
  status: string;
  text: string;
}

export interface Build {
  build_id: string;
  status: string;
  image: string;
  error: string | null;
}

/** How current the list is. */
export type Connection = "connecting" | "live" | "polling" | "offline";

const MAX_CHANGES = 100;
const MAX_BUILDS = 100;
const POLL_INTERVAL = 3_000;
const HIDDEN_POLL_INTERVAL = 15_000;
/** Polls before the page tries events again. */
const POLLS = 20;
/** Sandboxes outside of the list that one poll asks for. */
const POLLED_ABSENT = 25;
const BACKOFF = { first: 500, last: 30_000 };

export const sandboxes = new Store<ReadonlyMap<string, Runtime>>(new Map());
export const builds = new Store<ReadonlyMap<string, Build>>(new Map());
export const connection = new Store<Connection>("connecting");
/** Reason for which the list is not current. */
export const connectionError = new Store("");
/** True once the list is complete. */
export const loaded = new Store(false);
/** The time, for ages; it moves every 5 s. */
export const clock = new Store(Date.now());
setInterval(() => clock.set(Date.now()), 5_000);

const known = new Map<string, Runtime>();
const histories = new Map<string, Change[]>();
let scheduled = false;

/** Publishes `known` once a frame. */
function publish(): void {
  if (scheduled) return;
  scheduled = true;
  frame(() => {
    scheduled = false;
    sandboxes.set(new Map(known));
  });
}

/** Changes of a sandbox, the newest last. */
export function history(id: string): readonly Change[] {
  return histories.get(id) ?? [];
}

/** Adds or replaces a sandbox, for example with the answer of a call. */
export function put(next: Runtime, at = new Date().toISOString()): void {
  const id = next.runtime_id;
  const last = known.get(id);
  // Events have no session key and no log; what a call has answered is kept.
  const key = next.session_api_key ?? last?.session_api_key;
  const logs = next.pod_logs ?? last?.pod_logs;
  const idle = next.idle_since === undefined ? {} : { idle_since: lastActivity(last, next) };
  known.set(id, { ...next, ...idle, ...(key ? { session_api_key: key } : {}), ...(logs ? { pod_logs: logs } : {}) });
  record(last, next, at);
  publish();
}

/** The latest activity that a gateway has reported: each replica knows its own requests only. */
function lastActivity(last: Runtime | undefined, { status, idle_since: since }: Runtime): string | null {
  if (status !== "running") return null;
  const reported = since ?? new Date().toISOString();
  return last?.idle_since && last.idle_since > reported ? last.idle_since : reported;
}

/** Reads the idle times anew, which no event has. */
export async function refreshIdle(): Promise<void> {
  // A list that is polled has them, and one that is not current shows old ones.
  if (connection.get() !== "live") return;
  const { idle_since: reported } = await api.idle();
  for (const [id, since] of Object.entries(reported)) {
    const last = known.get(id);
    // An event reports those that have begun to run or have ended meanwhile.
    if (last?.status !== "running") continue;
    const next = lastActivity(last, { ...last, idle_since: since });
    // A row with the same object is not drawn again.
    if (next !== last.idle_since) known.set(id, { ...last, idle_since: next });
  }
  publish();
}

function record(last: Runtime | undefined, next: Runtime, at: string): void {
  const changes = histories.get(next.runtime_id) ?? earlier(next);
  // The API may have a time of the present state, which is that of its change.
  if (!last && changes.at(-1)?.status === next.status) return void histories.set(next.runtime_id, changes);
  const add = (text: string) => changes.push({ at, status: next.status, text });
  if (last && next.restart_count > last.restart_count) {
    add(`restarted: ${next.restart_reasons.at(-1) ?? "no reason is known"}`);
  }
  if (!last || last.status !== next.status || last.status_detail !== next.status_detail) {
    add(next.status_detail ?? (last?.status === next.status ? "" : next.status));
  }
  histories.set(next.runtime_id, changes.filter((change) => change.text).slice(-MAX_CHANGES));
}

/** Changes before the page saw a sandbox: its last pause and resume, and the event that explains its state. */
function earlier({ persisted, restored, events: [event], status }: Runtime): Change[] {
  const changes: Change[] = [];
  const why = (reason: string | null) => (reason ? ` (${reason})` : "");
  if (persisted?.at) changes.push({ at: persisted.at, status: "paused", text: `kept ${persisted.level}${why(persisted.reason)}` });
  if (restored?.at) changes.push({ at: restored.at, status: "running", text: `restored ${restored.level}${why(restored.reason)}` });
  changes.sort(byTime);
  if (event?.lastTimestamp) {
    const change = { at: event.lastTimestamp, status, text: event.message ?? event.reason };
    // An event that is no newer has the time of the pause: the sandbox has not been ready since.
    if (changes.every((one) => byTime(one, change) < 0)) changes.push(change);
  }
  return changes;
}

/** Order of changes, the oldest first. */
export function byTime(one: { at: string }, other: { at: string }): number {
  return Date.parse(one.at) - Date.parse(other.at);
}

function remove(id: string): void {
  known.delete(id);
  histories.delete(id);
  publish();
}

/** Follows the sandboxes of a key until the returned function is called. */
export function follow(apiKey: string): () => void {
  const stop = new AbortController();
  void run(apiKey, stop.signal);
  return () => {
    stop.abort();
    known.clear();
    histories.clear();
    builds.set(new Map());
    loaded.set(false);
    connection.set("connecting");
    connectionError.set("");
    publish();
  };
}

async function run(apiKey: string, signal: AbortSignal): Promise<void> {
  const stream = new Listing();
  let backoff = BACKOFF.first;
  while (!signal.aborted) {
    try {
      stream.begin();
      await readEvents("events", apiKey, stream.cursor, signal, () => setConnection("live"), (event) => {
        if (!signal.aborted && stream.apply(event)) backoff = BACKOFF.first;
      });
    } catch (error) {
      if (signal.aborted) return;
      const status = error instanceof CallError ? error.status : 0;
      if (status === 401) return logOut("The gateway no longer accepts this API key.");
      if (status === 404 || status === 405 || status === 501) {
        if (!(await poll(signal))) return;
        continue;
      }
      setConnection("offline", describe(error));
    }
    await delay(backoff * (0.5 + Math.random() / 2), signal);
    backoff = Math.min(backoff * 2, BACKOFF.last);
  }
}

function setConnection(next: Connection, error = ""): void {
  connection.set(next);
  connectionError.set(error);
}

/** Applies the events of a stream, and of those that continue it. */
class Listing {
  cursor = "";
  private seen = new Set<string>();

  begin(): void {
    this.seen.clear();
  }

  /** Returns whether the stream has caught up with this event. */
  apply({ event, id, data }: StreamEvent): boolean {
    if (event === "runtime") {
      const { at, change: _, ...info } = JSON.parse(data) as Runtime & { at?: string; change: string };
      this.seen.add(info.runtime_id);
      put(info, at);
    } else if (event === "deleted") {
      remove((JSON.parse(data) as { runtime_id: string }).runtime_id);
    } else if (event === "build") {
      addBuild(JSON.parse(data) as Build);
    } else if (event === "synced") {
      for (const id of known.keys()) if (!this.seen.has(id)) remove(id);
      loaded.set(true);
    }
    if (id) this.cursor = id;
    return event === "synced" || event === "resumed";
  }
}

function addBuild(build: Build): void {
  const all = new Map(builds.get());
  all.delete(build.build_id);
  all.set(build.build_id, build);
  builds.set(new Map([...all].slice(-MAX_BUILDS)));
}

/** Polls for a while. Returns false if the login has ended. */
async function poll(signal: AbortSignal): Promise<boolean> {
  for (let round = 0; round < POLLS && !signal.aborted; round++) {
    try {
      const listed = new Set((await api.list()).runtimes.map((info) => (put(info), info.runtime_id)));
      await pollAbsent([...known.keys()].filter((id) => !listed.has(id)), signal);
      loaded.set(true);
      setConnection("polling");
    } catch (error) {
      if (signal.aborted || (error instanceof CallError && error.status === 401)) return false;
      setConnection("offline", describe(error));
    }
    await delay(document.hidden ? HIDDEN_POLL_INTERVAL : POLL_INTERVAL, signal);
  }
  return !signal.aborted;
}

let turn = 0;

/** The list has live sandboxes only: asks for some of the others, in turn. */
async function pollAbsent(ids: string[], signal: AbortSignal): Promise<void> {
  const some = Array.from({ length: Math.min(ids.length, POLLED_ABSENT) }, () => ids[turn++ % ids.length]!);
  for (const id of some) {
    if (signal.aborted) return;
    await refresh(id);
  }
}

/** Reads a sandbox anew, with its session key and log. A sandbox that is gone is removed. */
export async function refresh(id: string): Promise<Runtime | null> {
  try {
    const info = await api.runtime(id);
    put(info);
    return info;
  } catch (error) {
    if (!(error instanceof CallError && error.status === 404)) throw error;
    remove(id);
    return null;
  }
}

function delay(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
