import { api } from "./api";
import { commandLine } from "./format";
import { Empty, Problem, useAnswer } from "./ui";

const INTERVAL = 15_000;

/** Pools of warm sandboxes. */
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
    </>
  );
}
