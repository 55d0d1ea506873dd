// All sandboxes of the key, live.

import { memo } from "preact/compat";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Runtime } from "./api";
import { age, cost, costTexts, factor, idle, requests, shortImage, time, visible } from "./format";
import { go, link } from "./route";
import { clock, connection, connectionError, loaded, refreshIdle, sandboxes } from "./sandboxes";
import { StartDialog } from "./start";
import { useStore } from "./store";
import { Empty, Problem, Status, usePageKey } from "./ui";

type Column = "session" | "status" | "age" | "image" | "size" | "idle" | "cost";

/** Activity is no event, so the page asks for it: seldom, as there may be hundreds of pages. */
const IDLE_INTERVAL = 30_000;

const ORDER = ["error", "starting", "running", "paused", "stopped"];

const COMPARE: Record<Column, (a: Runtime, b: Runtime, now: number) => number> = {
  session: (a, b) => a.session_id.localeCompare(b.session_id),
  status: (a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status),
  age: (a, b) => (b.created_at ?? "").localeCompare(a.created_at ?? ""),
  image: (a, b) => shortImage(a.image).localeCompare(shortImage(b.image)),
  size: (a, b) => b.resource_factor - a.resource_factor,
  // Those that do not run come last.
  idle: (a, b) => (a.idle_since || "~").localeCompare(b.idle_since || "~"),
  cost: (a, b, now) => (cost(b, now)?.core ?? -1) - (cost(a, now)?.core ?? -1),
};

const HEADS: [Column, string][] = [
  ["session", "Session"],
  ["status", "Status"],
  ["image", "Image"],
  ["size", "Size"],
  ["idle", "Idle"],
  ["cost", "Cost"],
  ["age", "Age"],
];

/** Filter and order stay while other pages are open. */
let kept = { filter: "", /** Empty: all but stopped ones. */ status: "", sort: "age" as Column, reverse: false };

export function SandboxList() {
  const all = useStore(sandboxes);
  const complete = useStore(loaded);
  const now = useStore(clock);
  const offline = useStore(connection) === "offline";
  const error = useStore(connectionError);
  const [view, setView] = useState(kept);
  const [starting, setStarting] = useState(false);
  const filter = useRef<HTMLInputElement>(null);
  const rows = useRef<HTMLTableSectionElement>(null);
  const change = (part: Partial<typeof kept>) => setView((kept = { ...view, ...part }));

  useEffect(() => {
    // A failure is that of the stream too, which says so. The next read repeats it.
    const refresh = () => document.hidden || void refreshIdle().catch(() => undefined);
    refresh();
    const timer = setInterval(refresh, IDLE_INTERVAL);
    return () => clearInterval(timer);
  }, []);

  usePageKey((event) => {
    if (event.key === "/") filter.current?.focus();
    else if (event.key === "n") setStarting(true);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") moveFocus(rows.current, event.key === "ArrowDown" ? 1 : -1);
    else return;
    event.preventDefault();
  });

  const counts = useMemo(() => count(all), [all]);
  const shown = useMemo(() => select(all, view), [all, view]);

  return (
    <>
      <div class="bar">
        <h1>Sandboxes</h1>
        <input
          ref={filter}
          type="search"
          placeholder="Filter by session, id, image ( / )"
          aria-label="Filter"
          value={view.filter}
          onInput={(event) => change({ filter: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key === "Escape") event.currentTarget.blur();
            if (event.key === "Enter" && shown[0]) go("sandboxes", shown[0].runtime_id);
            if (event.key === "ArrowDown") moveFocus(rows.current, 1);
          }}
        />
        <button class="primary" type="button" onClick={() => setStarting(true)}>
          Start a sandbox
        </button>
      </div>
      <div class="chips" role="group" aria-label="Status">
        <Chip text="current" count={all.size - (counts.get("stopped") ?? 0)} on={view.status === ""} pick={() => change({ status: "" })} />
        {ORDER.map((status) => (
          <Chip key={status} text={status} count={counts.get(status) ?? 0} on={view.status === status} pick={() => change({ status })} />
        ))}
      </div>
      <Problem text={offline ? `The list is not current. ${error}` : ""} />
      {shown.length > 0 ? (
        <table class="list">
          <thead>
            <tr>
              {HEADS.map(([column, text]) => (
                <Head key={column} {...{ column, text, view, change }} />
              ))}
            </tr>
          </thead>
          <tbody ref={rows}>
            {shown.map((runtime) => (
              <Row key={runtime.runtime_id} runtime={runtime} {...texts(runtime, now)} />
            ))}
          </tbody>
        </table>
      ) : (
        <Nothing complete={complete} any={all.size > (counts.get("stopped") ?? 0) || view.status !== ""} start={() => setStarting(true)} />
      )}
      {starting && <StartDialog close={() => setStarting(false)} />}
    </>
  );
}

function Nothing({ complete, any, start }: { complete: boolean; any: boolean; start(): void }) {
  if (!complete) return <div class="skeleton" aria-label="Loading" />;
  if (any) return <Empty title="No sandbox matches">Change the filter, or choose another status.</Empty>;
  return (
    <Empty title="No sandboxes yet">
      <p>A sandbox is a machine of its own for an agent: with a shell, files and an address that stays.</p>
      <button class="primary" type="button" onClick={start}>
        Start the first one
      </button>
    </Empty>
  );
}

function count(all: ReadonlyMap<string, Runtime>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { status } of all.values()) counts.set(status, (counts.get(status) ?? 0) + 1);
  return counts;
}

function select(all: ReadonlyMap<string, Runtime>, view: typeof kept): Runtime[] {
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (runtime: Runtime) => {
    if (view.status ? runtime.status !== view.status : runtime.status === "stopped") return false;
    const text = `${runtime.session_id} ${runtime.runtime_id} ${runtime.image} ${runtime.status}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const compare = COMPARE[view.sort];
  const sign = view.reverse ? -1 : 1;
  const now = Date.now();
  const found = [...all.values()].filter(matches);
  return found.sort((a, b) => sign * compare(a, b, now) || a.runtime_id.localeCompare(b.runtime_id));
}

function moveFocus(rows: HTMLElement | null, by: number): void {
  const links = [...(rows?.querySelectorAll<HTMLElement>("a.session") ?? [])];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
}

function Chip({ text, count, on, pick }: { text: string; count: number; on: boolean; pick(): void }) {
  return (
    <button type="button" class="chip" aria-pressed={on} onClick={pick}>
      {text} <span class="count">{count}</span>
    </button>
  );
}

function Head(props: { column: Column; text: string; view: typeof kept; change(part: Partial<typeof kept>): void }) {
  const { column, text, view, change } = props;
  const on = view.sort === column;
  const direction = view.reverse ? "descending" : "ascending";
  return (
    <th class={column} scope="col" aria-sort={on ? direction : "none"}>
      <button type="button" onClick={() => change({ sort: column, reverse: on && !view.reverse })}>
        {text} <span aria-hidden="true">{on ? (view.reverse ? "↑" : "↓") : ""}</span>
      </button>
    </th>
  );
}

/** Texts that change with time: a row is drawn again only if one of them is another. */
function texts(runtime: Runtime, now: number) {
  const [core, gib] = costTexts(runtime, now) ?? ["–", ""];
  return { age: age(runtime.created_at, now), idle: idle(runtime, now), core, gib };
}

const Row = memo(function Row({ runtime, age, idle, core, gib }: { runtime: Runtime } & ReturnType<typeof texts>) {
  const { runtime_id: id, session_id: session, status, status_detail: detail } = runtime;
  return (
    <tr onClick={(event) => (event.target as HTMLElement).closest("a") || go("sandboxes", id)}>
      <td class="session">
        <a class="session" href={link("sandboxes", id)} title={session}>
          {visible(session)}
        </a>
        {detail && status !== "running" ? (
          <span class="detail" title={detail}>
            {detail}
          </span>
        ) : (
          <span class="detail id">{id}</span>
        )}
      </td>
      <td class="status">
        <Status value={status} />
        {runtime.restart_count > 0 && <span class="restarts"> restarts: {runtime.restart_count}</span>}
      </td>
      <td class="image" title={runtime.image ?? ""}>
        {shortImage(runtime.image)}
      </td>
      <td class="size" title="Resources: multiples of the installation's standard size">
        {factor(runtime.resource_factor)}
      </td>
      <td class="idle" title={idle === "–" ? "" : `Last request through the gateway: ${time(runtime.idle_since)}`}>
        {idle}
      </td>
      <td class="cost" title={`Requests ${requests(runtime)} while it runs. Hours since its last start.`}>
        {core}
        {gib && <span class="detail">{gib}</span>}
      </td>
      <td class="age">{age}</td>
    </tr>
  );
});
