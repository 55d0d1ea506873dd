import { api } from "./api";
import { commandLine } from "./format";
import { builds } from "./sandboxes";
import { useStore } from "./store";
import { Empty, Problem, useAnswer } from "./ui";

const INTERVAL = 15_000;

/** Pools of warm sandboxes, and image builds that this page has seen. */
export function Pools() {
  const { value, error } = useAnswer(api.warmConfigs, "", INTERVAL);
  return (
    <>
      <div class="bar">
        <h1>Pools</h1>
      </div>
      <Problem text={error} />
      {!value ? (
        error ? null : <div class="skeleton" aria-label="Loading" />
      ) : value.configs.length === 0 ? (
        <Empty title="No pools">
          <p>A pool keeps sandboxes of one image warm, so that starts take milliseconds. An administrator creates pools.</p>
        </Empty>
      ) : (
        <table class="list plain">
          <thead>
            <tr>
              <th scope="col">Pool</th>
              <th scope="col">Warm</th>
              <th scope="col">Image</th>
              <th scope="col">Command</th>
              <th scope="col">Source</th>
            </tr>
          </thead>
          <tbody>
            {value.configs.map((config) => (
              <tr key={config.name}>
                <td>{config.name}</td>
                <td data-label="Warm">{config.count}</td>
                <td>
                  <code>{config.image}</code>
                </td>
                <td>
                  <code class="clip">{commandLine(config.command)}</code>
                </td>
                <td data-label="Source">{config.source === "db" ? "admin API" : "cluster"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <Builds />
    </>
  );
}

const BUILD_STATUS: Record<string, string> = { SUCCESS: "ready", WORKING: "saving", QUEUED: "pending" };

function Builds() {
  const all = useStore(builds);
  if (all.size === 0) return null;
  return (
    <>
      <h2 class="section">Image builds</h2>
      <table class="list plain">
        <thead>
          <tr>
            <th scope="col">Image</th>
            <th scope="col">Status</th>
            <th scope="col">Build</th>
          </tr>
        </thead>
        <tbody>
          {[...all.values()].reverse().map((build) => (
            <tr key={build.build_id}>
              <td>
                <code>{build.image}</code>
                {build.error && <span class="detail">{build.error}</span>}
              </td>
              <td>
                <span class={`status ${BUILD_STATUS[build.status] ?? "failed"}`}>{build.status.toLowerCase()}</span>
              </td>
              <td>
                <code>{build.build_id}</code>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
