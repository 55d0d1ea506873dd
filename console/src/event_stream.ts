// A server-sent event stream over `fetch`: EventSource cannot send the API key as a header.

import { failure, CallError } from "./errors";
import { gateway, options } from "./api";

export interface StreamEvent {
  event: string;
  id: string;
  data: string;
}

/** The gateway sends a comment every 15 s. */
const SILENCE = 45_000;
/** Largest event, in characters. */
const MAX_EVENT = 4 << 20;

/** Splits the text of a stream into events. */
export class EventParser {
  private rest = "";
  private event = { event: "message", id: "", data: [] as string[] };

  push(text: string, emit: (event: StreamEvent) => void): void {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    if (this.rest.length > MAX_EVENT) throw new CallError(0, "an event is too long");
    for (const line of lines) this.line(line.replace(/\r$/, ""), emit);
  }

  private line(line: string, emit: (event: StreamEvent) => void): void {
    if (line === "") {
      const { event, id, data } = this.event;
      if (data.length > 0 || event !== "message") emit({ event, id, data: data.join("\n") });
      this.event = { event: "message", id: "", data: [] };
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.event.event = value;
    else if (field === "id") this.event.id = value;
    else if (field === "data") this.event.data.push(value);
  }
}

/** Reads the events of a path until the stream ends. Throws if it does not begin, or breaks. */
export async function readEvents(
  path: string,
  apiKey: string,
  after: string,
  signal: AbortSignal,
  opened: () => void,
  emit: (event: StreamEvent) => void,
): Promise<void> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE);
  try {
    const headers: Record<string, string> = { "X-API-Key": apiKey, Accept: "text/event-stream" };
    if (after) headers["Last-Event-ID"] = after;
    const response = await fetch(gateway + path, {
      ...options,
      headers,
      signal: AbortSignal.any([signal, silence.signal]),
    });
    if (!response.ok) throw await failure(response);
    if (!response.headers.get("Content-Type")?.startsWith("text/event-stream") || !response.body) {
      throw new CallError(404, "the gateway does not stream this");
    }
    opened();
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE);
      parser.push(value, emit);
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}
