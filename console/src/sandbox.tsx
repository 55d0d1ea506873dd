// The page of one sandbox: its state, what can be done with it, and tabs.

import { useEffect, useState } from "preact/hooks";
import { type Runtime, api } from "./api";
import { describe } from "./errors";
import { Files } from "./files";
import { visible } from "./format";
import { sandboxLog } from "./log_sources";
import { LogView } from "./log_view";
import { Overview } from "./overview";
import { go, link, route } from "./route";
import { SandboxApi } from "./sandbox_api";
import { loaded, put, refresh, sandboxes } from "./sandboxes";
import { useStore } from "./store";
import { Terminals } from "./terminals";
import { Confirm, Empty, Problem, Status, usePageKey, useTask } from "./ui";

const TABS = [
  ["", "Overview"],
  ["terminal", "Terminal"],
  ["files", "Files"],
  ["logs", "Logs"],
] as const;

export function SandboxPage({ id }: { id: string }) {
  const runtime = useStore(sandboxes, (all) => all.get(id));
  const complete = useStore(loaded);
  const { tab } = useStore(route);
  const [error, setError] = useState("");
  const status = runtime?.status;
  // Events have neither the session key nor the log of a failure.
  useEffect(() => {
    refresh(id).then(
      (found) => setError(found ? "" : "gone"),
      (failed) => setError(describe(failed)),
    );
  }, [id, status]);
  usePageKey((event) => {
    if (event.key === "Escape") go("sandboxes");
    if (event.key === "t") go("sandboxes", id, "terminal");
    if (event.key === "f") go("sandboxes", id, "files");
    if (event.key === "l") go("sandboxes", id, "logs");
  });
  useEffect(() => {
    document.title = runtime ? `${runtime.session_id} – Sandboxes` : "Sandboxes";
    return () => void (document.title = "Sandboxes");
  }, [runtime?.session_id]);

  if (!runtime) {
    if (error === "gone" || (complete && !error)) {
      return (
        <Empty title="This sandbox does not exist">
          <p>It was stopped and removed, or belongs to another API key.</p>
          <a href={link("sandboxes")}>All sandboxes</a>
        </Empty>
      );
    }
    return error ? <Problem text={error} /> : <div class="skeleton" aria-label="Loading" />;
  }
  return (
    <div class={`sandbox-page ${tab}`}>
      <Head runtime={runtime} />
      <Problem text={error === "gone" ? "" : error} />
      <nav class="tabs" aria-label="Parts">
        {TABS.map(([name, text]) => (
          <a key={name} href={link("sandboxes", id, ...(name ? [name] : []))} aria-current={tab === name ? "page" : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <Part runtime={runtime} tab={tab} />
    </div>
  );
}

function Part({ runtime, tab }: { runtime: Runtime; tab: string }) {
  const { runtime_id: id, session_api_key: key } = runtime;
  const [sandbox, setSandbox] = useState<SandboxApi | null>(null);
  useEffect(() => setSandbox(key ? new SandboxApi(id, key) : null), [id, key]);
  if (tab === "") return <Overview runtime={runtime} sandbox={sandbox} />;
  if (tab === "logs") return <LogView source={sandboxLog(id)} name={id} />;
  if (runtime.status !== "running") return <NotRunning runtime={runtime} />;
  if (!sandbox) return <div class="skeleton" aria-label="Loading" />;
  return tab === "terminal" ? <Terminals sandbox={sandbox} /> : <Files runtime={runtime} sandbox={sandbox} />;
}

function isLive(status: Runtime["status"]): boolean {
  return status === "running" || status === "starting";
}

function NotRunning({ runtime }: { runtime: Runtime }) {
  const words = {
    starting: "Terminal and files are here as soon as it runs.",
    paused: "Resume it to get a terminal and its files.",
    stopped: "A stopped sandbox has no files and does not come back.",
    error: "The overview has the end of its log.",
    running: "",
  };
  return <Empty title={`The sandbox is ${runtime.status === "error" ? "not running" : runtime.status}`}>{words[runtime.status]}</Empty>;
}

function Head({ runtime }: { runtime: Runtime }) {
  const { runtime_id: id, session_id: session, status, status_detail: detail } = runtime;
  return (
    <div class="head">
      <a class="back" href={link("sandboxes")} title="All sandboxes (Esc)" aria-label="All sandboxes">
        ←
      </a>
      <div class="name">
        <h1 title={session}>{visible(session)}</h1>
        <p>
          <Status value={status} /> {detail && <span class="muted">{detail}</span>}
        </p>
      </div>
      <Buttons id={id} session={session} status={status} />
    </div>
  );
}

function Buttons({ id, session, status }: { id: string; session: string; status: Runtime["status"] }) {
  const { busy, error, run, clear } = useTask();
  const [confirming, setConfirming] = useState(false);
  const [note, setNote] = useState("");
  const change = (verb: "pause" | "resume" | "stop") => run(async () => put(await api.change(verb, id)));
  const snapshot = () =>
    run(async () => {
      const made = await api.snapshot(id);
      setNote(`Snapshot ${made.snapshot_id} has begun.`);
    });
  useEffect(() => (clear(), setNote("")), [status]);
  const live = isLive(status);
  return (
    <div class="actions">
      <div class="buttons">
        {live && (
          <button type="button" disabled={busy} onClick={() => void change("pause")} title="Releases the compute, keeps files, address and key">
            Pause
          </button>
        )}
        {(status === "paused" || status === "error") && (
          <button type="button" class="primary" disabled={busy} onClick={() => void change("resume")}>
            {status === "paused" ? "Resume" : "Start again"}
          </button>
        )}
        {status === "running" && (
          <button type="button" disabled={busy} onClick={() => void snapshot()} title="Keeps the present state under a name">
            Snapshot
          </button>
        )}
        {status !== "stopped" && (
          <button type="button" class="danger" disabled={busy} onClick={() => setConfirming(true)}>
            Stop
          </button>
        )}
      </div>
      <Problem text={error} />
      {note && (
        <p class="note" role="status">
          {note} <a href={link("snapshots")}>Snapshots</a>
        </p>
      )}
      {confirming && (
        <Confirm
          title="Stop this sandbox?"
          text={`The files of ${session} are deleted. To keep them, pause it, or make a snapshot first.`}
          verb="Stop and delete files"
          close={() => setConfirming(false)}
          act={() => void change("stop")}
        />
      )}
    </div>
  );
}
