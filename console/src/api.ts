// Calls of the runtime API of the gateway.

import { CallError, failure, repeat } from "./errors";
import { Store } from "./store";
import { forgetKey, storeKey, storedKey } from "./credentials";

export type Status = "starting" | "running" | "paused" | "stopped" | "error";

/** A sandbox, as `GET /runtime/{id}` answers it. */
export interface Runtime {
  runtime_id: string;
  session_id: string;
  url: string;
  session_api_key?: string;
  status: Status;
  pod_status: string;
  status_detail: string | null;
  work_hosts: Record<string, number>;
  persisted?: { level: string; at: string | null; size: number | null; reason: string | null };
  restored?: { level: string; at: string | null; reason: string | null };
  incarnation: number;
  restart_count: number;
  restart_reasons: string[];
  events: { type: string; reason: string; message: string | null; lastTimestamp: string | null }[];
  pod_logs?: string;
  command: string | string[] | null;
  image: string | null;
  working_dir: string | null;
  resource_factor: number;
  requested_cpu_millicores?: number | null;
  requested_memory_bytes?: number | null;
  runtime_class: string | null;
  created_at: string | null;
  /** Begin of the present run. */
  started_at?: string | null;
  /** Stages of that run. Null: it was warm, or is not ready yet. */
  scheduled_at?: string | null;
  container_started_at?: string | null;
  ready_at?: string | null;
  /** End of the last request. Null: one is open, or the sandbox does not run. */
  idle_since?: string | null;
}

export interface Snapshot {
  snapshot_id: string;
  runtime_id: string | null;
  session_id: string | null;
  status: "pending" | "saving" | "ready" | "failed";
  level: string | null;
  size_bytes: number | null;
  created_at: string | null;
  saved_at: string | null;
  expires_at: string | null;
  reason: string | null;
}

export interface Build {
  build_id: string;
  status: string;
  image: string;
  error: string | null;
  step?: string;
  tags: string[];
  mode: "alias" | "append" | "full";
  created_at: string | null;
  finished_at: string | null;
  size_bytes: number | null;
}

export interface WarmConfig {
  name: string;
  image: string;
  command: string[] | null;
  working_dir: string;
  count: number;
  source: "file" | "db";
}

/** An amount in use and its limit. Null: not known, or no limit. */
export interface Used {
  used: number | null;
  limit: number | null;
}

export interface Usage {
  sandboxes?: Used;
  cpu_millicores?: Used;
  memory_bytes?: Used;
  waiting_starts?: Used;
  total_sandboxes?: Used;
  stored_bytes?: Used;
  snapshots?: Used;
  image_builds?: Used;
  calls_per_second?: number | null;
}

const CALL_TIMEOUT = 30_000;

/** URL of the gateway, with a slash at its end: the console is at `console/` below it. */
export const gateway = new URL("..", location.href.replace(/[?#].*/, "")).href;

/** The API key of this page; `null` without a login. */
export const key = new Store<string | null>(storedKey());
/** Said on the login page after a logout that the user did not ask for. */
export const loginNote = new Store("");

// A link makes a history entry without the mask of the key.
addEventListener("hashchange", () => {
  const present = key.get();
  if (present !== null && !history.state?.pad) storeKey(present);
});

export function logIn(value: string): void {
  storeKey(value);
  loginNote.set("");
  key.set(value);
}

export function logOut(note = ""): void {
  forgetKey();
  loginNote.set(note);
  key.set(null);
}

/** Options of every request: no cookies, which sandboxes of the same origin could set. */
export const options = { cache: "no-store", credentials: "omit", redirect: "error" } as const;

/** Calls the API with the key of this page. A rejected key ends the login. */
export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const present = key.get();
  if (present === null) throw new CallError(401, "you are not logged in");
  try {
    return await callAs<T>(present, method, path, body);
  } catch (error) {
    if (error instanceof CallError && error.status === 401 && key.get() === present) {
      logOut("The gateway no longer accepts this API key.");
    }
    throw error;
  }
}

export async function callAs<T>(apiKey: string, method: string, path: string, body?: unknown): Promise<T> {
  const send = () =>
    fetch(gateway + path, {
      ...options,
      method,
      headers: { "X-API-Key": apiKey, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(CALL_TIMEOUT),
    });
  const response = await (method === "GET" ? repeat(send) : send());
  if (!response.ok) throw await failure(response);
  return (await response.json()) as T;
}

const path = encodeURIComponent;

export const api = {
  list: () => call<{ runtimes: Runtime[] }>("GET", "list"),
  idle: () => call<{ idle_since: Record<string, string | null> }>("GET", "list/idle"),
  runtime: (id: string) => call<Runtime>("GET", `runtime/${path(id)}`),
  start: (request: Record<string, unknown>) => call<Runtime>("POST", "start", request),
  change: (verb: "pause" | "resume" | "stop", id: string) => call<Runtime>("POST", verb, { runtime_id: id }),
  snapshots: () => call<{ snapshots: Snapshot[] }>("GET", "snapshots"),
  snapshot: (id: string) => call<Snapshot>("POST", "snapshots", { runtime_id: id }),
  deleteSnapshot: (id: string) => call<unknown>("DELETE", `snapshots/${path(id)}`),
  startSnapshot: (id: string, session: string) =>
    call<{ runtimes: Runtime[] }>("POST", `snapshots/${path(id)}/start`, session ? { session_id: session } : {}),
  builds: () => call<{ builds: Build[]; total: number }>("GET", "builds"),
  warmConfigs: () => call<{ configs: WarmConfig[] }>("GET", "api/warm-runtime-configs"),
  usage: () => call<Usage>("GET", "usage"),
};
