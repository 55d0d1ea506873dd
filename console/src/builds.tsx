import { useEffect } from "preact/hooks";
import { type Build, api } from "./api";
import { age, bytes, time } from "./format";
import { buildLog } from "./log_sources";
import { LogView } from "./log_view";
import { go, link } from "./route";
import { builds, clock } from "./sandboxes";
import { useStore } from "./store";
import { Empty, Problem, useAnswer, usePageKey } from "./ui";

const INTERVAL = 15_000;
/** Answer of a gateway without image builds. */
const NO_PATH = "No such path.";
const STATUS: Record<string, string> = { SUCCESS: "ready", WORKING: "saving", QUEUED: "pending" };

/** Image builds of the key, or the log of one. */
export function Builds({ id }: { id: string }) {
  const { value, error, reload } = useAnswer(api.builds, "", INTERVAL);
  const seen = useStore(builds);
  useEffect(reload, [seen]);
  if (id) return <BuildPage id={id} build={value?.builds.find((build) => build.build_id === id)} />;
  return (
    <>
      <div class="bar">
        <h1>Builds</h1>
      </div>
      <Problem text={error === NO_PATH ? "" : error} />
      {error === NO_PATH ? (
        <Empty title="Image builds are off">
          <p>Sandboxes start from images that exist. An administrator can allow builds.</p>
        </Empty>
      ) : !value ? (
        error ? null : <div class="skeleton" aria-label="Loading" />
      ) : value.builds.length === 0 ? (
        <Empty title="No builds">
          <p>A client that names no image has one built, and its sandboxes start from it.</p>
        </Empty>
      ) : (
        <List all={value.builds} total={value.total} />
      )}
    </>
  );
}

function List({ all, total }: { all: Build[]; total: number }) {
  const now = useStore(clock);
  return (
    <>
      <table class="list plain">
        <thead>
          <tr>
            <th scope="col">Image</th>
            <th scope="col">Status</th>
            <th scope="col">Mode</th>
            <th scope="col">Size</th>
            <th scope="col">Age</th>
            <th scope="col" aria-label="Log" />
          </tr>
        </thead>
        <tbody>
          {all.map((build) => (
            <tr key={build.build_id}>
              <td>
                <code>{build.image}</code>
                <span class="detail">{build.error ?? build.step ?? build.build_id}</span>
              </td>
              <td>
                <BuildStatus status={build.status} />
              </td>
              <td data-label="Mode">{build.mode}</td>
              <td data-label="Size">{build.size_bytes === null ? "–" : bytes(build.size_bytes)}</td>
              <td data-label="Age" title={time(build.created_at)}>
                {age(build.created_at, now)}
              </td>
              <td class="buttons">{build.mode === "full" && <a href={link("builds", build.build_id)}>Log</a>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {total > all.length && <p class="muted">{total - all.length} older builds are not shown.</p>}
    </>
  );
}

function BuildStatus({ status }: { status: string }) {
  return <span class={`status ${STATUS[status] ?? "failed"}`}>{status.toLowerCase()}</span>;
}

function BuildPage({ id, build }: { id: string; build: Build | undefined }) {
  usePageKey((event) => {
    if (event.key === "Escape") go("builds");
  });
  return (
    <div class="sandbox-page logs">
      <div class="head">
        <a class="back" href={link("builds")} title="All builds (Esc)" aria-label="All builds">
          ←
        </a>
        <div class="name">
          <h1 title={build?.image ?? id}>{build?.image ?? id}</h1>
          <p>{build && <BuildStatus status={build.status} />}</p>
        </div>
      </div>
      <Problem text={build?.error ?? ""} />
      <LogView source={buildLog(id)} name={id} />
    </div>
  );
}
