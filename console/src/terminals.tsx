// The terminals of a sandbox, and a view of the agent's own shell.

import { useEffect, useRef, useState } from "preact/hooks";
import { CallError } from "./errors";
import { link, route } from "./route";
import { type SandboxApi, serverUrl } from "./sandbox_api";
import { refresh } from "./sandboxes";
import { useStore } from "./store";
import { TerminalLink } from "./terminal_link";
import { Empty, Problem, useAnswer, useTask } from "./ui";

interface TerminalInfo {
  id: string;
  name: string;
  running: boolean;
}

const AGENT = "agent";
/** Terminals that this page has created: what they print first is new. */
const created = new Set<string>();

/** Terminals of the sandbox; `offered` is false where its server has none. */
async function list(sandbox: SandboxApi): Promise<{ offered: boolean; all: TerminalInfo[] }> {
  try {
    const { terminals } = (await sandbox.json("/terminals")) as { terminals?: Record<string, unknown>[] };
    const all = (Array.isArray(terminals) ? terminals : []).filter((one) => one?.tty === true).map(read);
    return { offered: true, all };
  } catch (error) {
    if (error instanceof CallError && error.status === 404) return { offered: false, all: [] };
    throw error;
  }
}

function read(one: Record<string, unknown>): TerminalInfo {
  const program = Array.isArray(one.command) ? String(one.command[0] ?? "") : "";
  return { id: String(one.id), name: program.slice(program.lastIndexOf("/") + 1) || "shell", running: one.state === "running" };
}

export function Terminals({ sandbox }: { sandbox: SandboxApi }) {
  const chosen = useStore(route).rest;
  const { value, error, reload } = useAnswer(() => list(sandbox), `${sandbox.id} ${sandbox.key}`);
  const { busy, error: failed, run } = useTask();
  const show = (id: string) => location.replace(link("sandboxes", sandbox.id, "terminal", id));
  const create = () =>
    run(async () => {
      const { id } = read((await sandbox.json("/terminals", "POST", {})) as Record<string, unknown>);
      created.add(id);
      reload();
      show(id);
    });
  const end = (id: string) =>
    run(async () => {
      await sandbox.json(`/terminals/${encodeURIComponent(id)}`, "DELETE");
      reload();
      if (id === chosen) show(AGENT);
    });
  // The tab alone shows the first terminal, and makes one if there is none.
  const opened = useRef(false);
  useEffect(() => {
    if (chosen || !value?.offered || opened.current) return;
    opened.current = true;
    const first = value.all.find((one) => one.running);
    if (first) show(first.id);
    else void create();
  }, [chosen, value]);

  if (!value) return error ? <Problem text={error} /> : <div class="skeleton" aria-label="Loading" />;
  if (!value.offered) {
    return <Empty title="No terminals">The server in this sandbox offers none: it is not the executor, or an older one.</Empty>;
  }
  return (
    <div class="terminals">
      <div class="strip">
        <a href={link("sandboxes", sandbox.id, "terminal", AGENT)} aria-current={chosen === AGENT ? "page" : undefined}>
          Agent's shell
        </a>
        {value.all.map((one, at) => (
          <span key={one.id} class="one">
            <a href={link("sandboxes", sandbox.id, "terminal", one.id)} aria-current={chosen === one.id ? "page" : undefined}>
              {one.name} {at + 1}
              {one.running ? "" : " (ended)"}
            </a>
            <button type="button" class="quiet small" aria-label={`End ${one.name} ${at + 1}`} title="End it" onClick={() => void end(one.id)}>
              ✕
            </button>
          </span>
        ))}
        <button type="button" class="small" disabled={busy} onClick={() => void create()}>
          + New terminal
        </button>
      </div>
      <Problem text={failed} />
      {chosen && <Screen key={`${chosen} ${sandbox.key}`} sandbox={sandbox} id={chosen} ended={reload} />}
    </div>
  );
}

function Screen({ sandbox, id, ended }: { sandbox: SandboxApi; id: string; ended(): void }) {
  const place = useRef<HTMLDivElement>(null);
  const [broken, setBroken] = useState(false);
  const [end, setEnd] = useState("");
  const canType = id !== AGENT;
  useEffect(() => {
    let close = () => {};
    let closed = false;
    void import("./terminal_view").then(({ openTerminal }) => {
      if (closed || !place.current) return;
      let connection: TerminalLink | null = null;
      const view = openTerminal(place.current, canType, !created.has(id), () => connection);
      connection = new TerminalLink(
        (after) => address(sandbox, id, after),
        {
          output: (bytes, shown) => view.write(bytes, shown),
          // The agent's shell is 1000 columns wide, which no screen is.
          size: (columns, rows) => canType && view.resize(columns, rows),
          note: (text) => view.note(text),
          ended(text) {
            setEnd(text);
            ended();
          },
          connected: (open) => setBroken(!open),
        },
        () => mayConnect(sandbox, id),
      );
      view.announce();
      if (canType) view.focus();
      close = () => (connection?.close(), view.close());
    });
    return () => {
      closed = true;
      close();
    };
  }, []);
  return (
    <div class="screen-frame">
      {id === AGENT && <p class="muted hint">What the agent's shell prints, as it works. You cannot type here.</p>}
      {(end || broken) && (
        <p class="note" role="status">
          {end || "The connection broke. Trying again…"}
        </p>
      )}
      <div class="screen" ref={place} />
    </div>
  );
}

/** A browser cannot send headers with a WebSocket: the session key is part of the address. */
function address(sandbox: SandboxApi, id: string, after: number | null): string {
  const base = serverUrl(sandbox.id).replace(/^http/, "ws");
  const query = new URLSearchParams({ session_api_key: sandbox.key });
  if (after !== null) query.set("after", String(after));
  return `${base}/terminals/${encodeURIComponent(id)}/connect?${query}`;
}

/** A request wakes a sandbox that is paused as idle, so its state is asked for first. */
async function mayConnect(sandbox: SandboxApi, id: string): Promise<"yes" | "later" | "gone"> {
  const info = await refresh(sandbox.id);
  if (!info || info.status === "stopped") return "gone";
  if (info.status !== "running") return "later";
  if (id === AGENT) return "yes";
  try {
    await sandbox.json(`/terminals/${encodeURIComponent(id)}`);
    return "yes";
  } catch (error) {
    return error instanceof CallError && error.status === 404 ? "gone" : "later";
  }
}
