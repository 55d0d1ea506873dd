// Facts of a sandbox, links into it, and its changes.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Runtime } from "./api";
import { sentence } from "./errors";
import { age, bytes, commandLine, costTexts, duration, factor, moment, requests, time } from "./format";
import { type SandboxApi, type ServerInfo, portUrl } from "./sandbox_api";
import { byTime, clock, history } from "./sandboxes";
import { useStore } from "./store";
import { Copy, Facts, Status, useAnswer } from "./ui";

const INFO_INTERVAL = 10_000;

export function Overview({ runtime, sandbox }: { runtime: Runtime; sandbox: SandboxApi | null }) {
  return (
    <div class="overview">
      <Failure runtime={runtime} />
      <section class="card">
        <h2>Sandbox</h2>
        <About runtime={runtime} />
      </section>
      <div class="column">
        {runtime.status === "running" && sandbox && <Live runtime={runtime} sandbox={sandbox} />}
        <Timeline runtime={runtime} />
      </div>
    </div>
  );
}

function Failure({ runtime }: { runtime: Runtime }) {
  if (runtime.status !== "error") return null;
  const event = runtime.events[0];
  const text = runtime.status_detail ?? event?.message ?? event?.reason ?? "no reason is known";
  return (
    <section class="card failure">
      <h2>The start has failed</h2>
      <p>{sentence(text)}</p>
      {runtime.pod_logs ? (
        <>
          <h3>End of the log</h3>
          <pre tabIndex={0}>{runtime.pod_logs}</pre>
        </>
      ) : (
        <p class="muted">The command has written no log.</p>
      )}
    </section>
  );
}

function About({ runtime }: { runtime: Runtime }) {
  const now = useStore(clock);
  const rows: [string, ComponentChildren][] = [
    ["Id", <Value text={runtime.runtime_id} label="Copy the id" />],
    ["Address", <Value text={runtime.url} label="Copy the address" />],
    ["Image", <Value text={runtime.image ?? "–"} label="Copy the name of the image" />],
    ["Command", <code>{commandLine(runtime.command)}</code>],
    ["Directory", <code>{runtime.working_dir ?? "–"}</code>],
    ["Size", `${factor(runtime.resource_factor)} of the standard`],
    ["Requests", requests(runtime)],
    ["Created", <span title={time(runtime.created_at)}>{age(runtime.created_at, now)} ago</span>],
    ["Restarts", restarts(runtime)],
    ["Pod", runtime.pod_status],
  ];
  const hours = costTexts(runtime, now);
  if (hours) rows.push(["Cost", `${hours.join(", ")} since the last start`]);
  if (runtime.runtime_class) rows.push(["Runtime class", runtime.runtime_class]);
  const { persisted, restored } = runtime;
  if (persisted) {
    const size = persisted.size ? `, ${bytes(persisted.size)}` : "";
    rows.push(["Last pause kept", `${persisted.level}${size}${persisted.reason ? ` (${persisted.reason})` : ""}`]);
  }
  if (restored) rows.push(["Restored", `${restored.level}${restored.reason ? ` (${restored.reason})` : ""}`]);
  return <Facts rows={rows} />;
}

function Value({ text, label }: { text: string; label: string }) {
  return (
    <>
      <code>{text}</code> <Copy text={text} label={label} />
    </>
  );
}

function restarts({ restart_count: count, restart_reasons: reasons }: Runtime): string {
  return count === 0 ? "none" : `${count}${reasons.length ? `: ${reasons.join(", ")}` : ""}`;
}

/** What the server in the sandbox says of itself, and links to the programs in it. */
function Live({ runtime, sandbox }: { runtime: Runtime; sandbox: SandboxApi }) {
  const { value: info, error } = useAnswer<ServerInfo>(() => sandbox.info(), `${sandbox.id} ${sandbox.key}`, INFO_INTERVAL);
  const cores = useCores(info);
  const [token, setToken] = useState<string | null>(null);
  const hasVscode = info?.plugins.some(([name]) => name === "vscode") ?? false;
  useEffect(() => {
    if (hasVscode) sandbox.vscodeToken().then(setToken, () => setToken(null));
  }, [hasVscode, sandbox]);
  const key = encodeURIComponent(sandbox.key);
  const links: [string, string][] = [];
  if (token) links.push(["VS Code", `${portUrl(runtime, "vscode")}?tkn=${encodeURIComponent(token)}`]);
  if (info?.plugins.some(([name]) => name === "browser")) {
    links.push(["Browser", `${portUrl(runtime, "browser")}?session_api_key=${key}`]);
  }
  // Below a path, relative links of an application need the slash.
  for (const [url, port] of Object.entries(runtime.work_hosts)) links.push([`Port ${port}`, url.replace(/\/?$/, "/")]);
  const rows: [string, ComponentChildren][] = [];
  if (info?.idle != null) rows.push(["Idle", info.idle < 1 ? "busy now" : `for ${duration(info.idle)}`]);
  if (info?.uptime != null) rows.push(["Server up", `for ${duration(info.uptime)}`]);
  if (cores !== null) rows.push(["CPU", `${Math.round(100 * cores)} % of a core`]);
  if (info?.memory) {
    const { used, limit } = info.memory;
    rows.push(["Memory", limit === null ? bytes(used) : `${bytes(used)} of ${bytes(limit)}`]);
  }
  if (info?.disk) rows.push(["Disk", `${bytes(info.disk.used)} of ${bytes(info.disk.total)}`]);
  if (info?.plugins.length) rows.push(["Plugins", info.plugins.map(([name, health]) => `${name}: ${health}`).join(", ")]);
  return (
    <section class="card">
      <h2>Inside</h2>
      {info ? <Facts rows={rows} /> : <p class="muted">{error ? `The server in it does not tell about itself. ${error}` : "…"}</p>}
      <p class="links">
        {links.filter(([, url]) => /^https?:/.test(url)).map(([text, url]) => (
          <a key={text} class="button" href={url} target="_blank" rel="noopener noreferrer">
            {text} ↗
          </a>
        ))}
      </p>
    </section>
  );
}

/** Cores in use between the last two answers. */
function useCores(info: ServerInfo | null): number | null {
  const last = useRef<ServerInfo | null>(null);
  const [cores, setCores] = useState<number | null>(null);
  useEffect(() => {
    const before = last.current;
    last.current = info;
    if (info?.cpuSeconds == null || info.uptime === null || before?.cpuSeconds == null || before.uptime === null) return;
    const seconds = info.uptime - before.uptime;
    setCores(seconds > 0 ? Math.max(0, info.cpuSeconds - before.cpuSeconds) / seconds : null);
  }, [info]);
  return cores;
}

/** Stages of the last start that the API has times of, each with the seconds since the one before. */
function stages(runtime: Runtime): [at: string, text: string][] {
  const { created_at: created, started_at: started } = runtime;
  const all: [string | null | undefined, string][] = [
    [created, "created"],
    [started === created ? null : started, "start began"],
    [runtime.scheduled_at, "Pod scheduled"],
    [runtime.container_started_at, "images pulled, container started"],
    [runtime.ready_at, "ready"],
  ];
  const known = all.filter((stage): stage is [string, string] => stage[0] != null);
  return known.map(([at, text], index) => {
    const before = known[index - 1];
    if (!before || text === "start began") return [at, text];
    return [at, `${text} after ${duration((Date.parse(at) - Date.parse(before[0])) / 1000)}`];
  });
}

/** Stages of the last start, the last pause and resume, and changes since the page was opened, the newest first. */
function Timeline({ runtime }: { runtime: Runtime }) {
  const entries: { at: string; text: string; status?: string }[] = [
    ...stages(runtime).map(([at, text]) => ({ at, text })),
    ...history(runtime.runtime_id),
  ];
  entries.sort(byTime);
  return (
    <section class="card">
      <h2>Changes</h2>
      <ol class="timeline">
        {entries.reverse().map(({ at, text, status }, index) => (
          <li key={entries.length - index}>
            <time dateTime={at} title={time(at)}>
              {moment(at)}
            </time>
            {status ? <Status value={status} /> : <span class="stage">{text}</span>}
            {status && text !== status && <span>{text}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}
