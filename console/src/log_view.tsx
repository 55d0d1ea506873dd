// The lines of a log. Output is not trusted: each line is the text of a node of its own.

import { useEffect, useRef, useState } from "preact/hooks";
import { type LogSink, type LogSource, MAX_LINES } from "./log_sources";
import { frame } from "./store";

/** Distance from the end, in pixels, within which new lines are scrolled to. */
const END_DISTANCE = 40;

/** Shows a log, and the same lines again if `source` is opened again under another `name`. */
export function LogView({ source, name }: { source: LogSource; name: string }) {
  const lines = useRef<HTMLDivElement>(null);
  const [state, setState] = useState("");
  const [hasLines, setHasLines] = useState(false);
  const [atEnd, setAtEnd] = useState(true);
  const [times, setTimes] = useState(false);
  useEffect(() => {
    const list = lines.current;
    if (!list) return;
    list.replaceChildren();
    setHasLines(false);
    const stop = new AbortController();
    void source(sinkOf(list, setState, setHasLines, stop.signal), stop.signal);
    return () => stop.abort();
  }, [name]);
  const toEnd = () => lines.current?.scrollTo({ top: lines.current.scrollHeight });
  return (
    <div class="log">
      <div class="log-bar">
        <span class="muted" role="status">
          {state || (hasLines ? "live" : "no output yet")}
        </span>
        <label>
          <input type="checkbox" checked={times} onChange={(event) => setTimes(event.currentTarget.checked)} /> Times
        </label>
        <button type="button" class="small" disabled={atEnd} onClick={toEnd}>
          To the end
        </button>
      </div>
      <div
        ref={lines}
        class={`log-lines ${times ? "with-times" : ""}`}
        role="log"
        aria-live="off"
        aria-label="Output"
        tabIndex={0}
        onScroll={(event) => setAtEnd(isAtEnd(event.currentTarget))}
      />
    </div>
  );
}

function isAtEnd(list: HTMLElement): boolean {
  return list.scrollHeight - list.scrollTop - list.clientHeight < END_DISTANCE;
}

/** Adds lines once per frame, and drops the oldest beyond `MAX_LINES`. */
function sinkOf(list: HTMLElement, state: (text: string) => void, hasLines: (has: boolean) => void, signal: AbortSignal): LogSink {
  let waiting: HTMLElement[] = [];
  let scheduled = false;
  const flush = () => {
    scheduled = false;
    if (signal.aborted) return;
    const follows = isAtEnd(list);
    list.append(...waiting.slice(-MAX_LINES));
    waiting = [];
    while (list.childElementCount > MAX_LINES) list.firstElementChild?.remove();
    if (follows) list.scrollTop = list.scrollHeight;
    hasLines(list.childElementCount > 0);
  };
  return {
    line(text, time) {
      waiting.push(lineOf(text, time));
      if (waiting.length > 2 * MAX_LINES) waiting = waiting.slice(-MAX_LINES);
      if (!scheduled) frame(flush);
      scheduled = true;
    },
    clear() {
      waiting = [];
      list.replaceChildren();
    },
    state(text) {
      if (!signal.aborted) state(text);
    },
  };
}

function lineOf(text: string, time?: string | null): HTMLElement {
  const line = document.createElement("div");
  if (time) {
    const stamp = document.createElement("time");
    stamp.dateTime = time;
    stamp.textContent = new Date(time).toLocaleTimeString(undefined, { hour12: false });
    line.append(stamp);
  }
  line.append(printable(text) || "\u200b");
  return line;
}

/** Removes colors, and shows other control characters as their pictures. */
function printable(text: string): string {
  const plain = text.replace(/\u001b\[[0-9;:?]*[ -/]*[@-~]/g, "");
  return plain.replace(/[\u0000-\u0008\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)));
}
