// Logs of sandboxes and builds, followed from their last lines to their end.

import { key, logOut } from "./api";
import { CallError, describe } from "./errors";
import { type StreamEvent, readEvents } from "./event_stream";
import { sandboxes } from "./sandboxes";

/** Place for the lines of a log. */
export interface LogSink {
  line(text: string, time?: string | null): void;
  /** Removes all lines: the log begins again. */
  clear(): void;
  /** Says why there are no new lines; empty while the log is live. */
  state(text: string): void;
}

/** Follows a log until its end, or until the signal. */
export type LogSource = (sink: LogSink, signal: AbortSignal) => Promise<void>;

/** Lines that the page keeps. */
export const MAX_LINES = 5_000;
/** Lines that it begins with. */
const TAIL = 1_000;
/** Time before a log that has ended is asked for again, if its sandbox runs. */
const REOPEN_DELAY = 2_000;
const BACKOFF = { first: 500, most: 10_000 };

const ENDS: Record<string, string> = {
  paused: "The sandbox is paused.",
  stopped: "The sandbox was stopped.",
  failed: "The sandbox has failed.",
  unavailable: "The cluster does not give the log now.",
};

export function sandboxLog(id: string): LogSource {
  return async (sink, signal) => {
    let cursor = "";
    const path = `runtime/${encodeURIComponent(id)}/logs?follow=true&tail=${TAIL}`;
    const take = (event: StreamEvent) => {
      const data = object(event.data);
      if (event.event === "end") {
        const reason = String(data.reason);
        return reason === "replaced" ? null : (ENDS[reason] ?? "The log has ended.");
      }
      if (event.event === "line") {
        if (event.id) cursor = event.id;
        const time = typeof data.time === "string" ? data.time : null;
        sink.line(`${String(data.text)}${data.cut === true ? " […]" : ""}`, time);
      }
      return null;
    };
    while (!signal.aborted && (await follow(path, () => cursor, sink, signal, take))) {
      await sleep(REOPEN_DELAY);
      await untilLive(id, signal);
    }
  };
}

export function buildLog(id: string): LogSource {
  return async (sink, signal) => {
    const path = `build_logs?build_id=${encodeURIComponent(id)}`;
    await follow(path, () => (sink.clear(), ""), sink, signal, (event) => {
      if (event.event === "end") return `The build has ended: ${String(object(event.data).status).toLowerCase()}.`;
      if (event.event === "message") sink.line(event.data);
      return null;
    });
  };
}

/** Waits until a sandbox that is paused, for example, starts again. */
function untilLive(id: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      const status = sandboxes.get().get(id)?.status;
      if (!signal.aborted && status !== "running" && status !== "starting") return;
      leave();
      resolve();
    };
    const leave = sandboxes.subscribe(look);
    signal.addEventListener("abort", look);
    look();
  });
}

function sleep(time: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, time));
}

/** Reads a stream again until `take` returns the text of its end; false if there is no such stream. `begin` returns the
 * cursor. */
async function follow(
  path: string,
  begin: () => string,
  sink: LogSink,
  signal: AbortSignal,
  take: (event: StreamEvent) => string | null,
): Promise<boolean> {
  for (let backoff = BACKOFF.first; !signal.aborted; backoff = Math.min(backoff * 2, BACKOFF.most)) {
    const apiKey = key.get();
    if (apiKey === null) return false;
    let end: string | null = null;
    try {
      await readEvents(path, apiKey, begin(), signal, () => sink.state(""), (event) => {
        if (signal.aborted) return;
        backoff = BACKOFF.first;
        end = take(event) ?? end;
      });
    } catch (error) {
      if (signal.aborted) return false;
      const status = error instanceof CallError ? error.status : 0;
      if (status === 401) {
        logOut("The gateway no longer accepts this API key.");
        return false;
      }
      sink.state(describe(error));
      if (status >= 400 && status < 500 && status !== 429) return false;
    }
    if (signal.aborted) return false;
    if (end !== null) {
      sink.state(end);
      return true;
    }
    await sleep(backoff);
  }
  return false;
}

function object(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
