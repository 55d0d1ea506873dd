import { useState } from "preact/hooks";
import { type Snapshot, api } from "./api";
import { age, bytes, time, visible } from "./format";
import { go, link } from "./route";
import { clock, put } from "./sandboxes";
import { useStore } from "./store";
import { Confirm, Dialog, Empty, Problem, Status, useAnswer, useTask } from "./ui";

const INTERVAL = 5_000;

export function Snapshots() {
  const { value, error, reload } = useAnswer(api.snapshots, "", INTERVAL);
  return (
    <>
      <div class="bar">
        <h1>Snapshots</h1>
      </div>
      <Problem text={error} />
      {!value ? (
        error ? null : <div class="skeleton" aria-label="Loading" />
      ) : value.snapshots.length === 0 ? (
        <Empty title="No snapshots">
          <p>A snapshot keeps the state of a running sandbox. Any number of others can begin with it.</p>
        </Empty>
      ) : (
        <table class="list plain">
          <thead>
            <tr>
              <th scope="col">Snapshot</th>
              <th scope="col">Status</th>
              <th scope="col">Level</th>
              <th scope="col">Size</th>
              <th scope="col">Age</th>
              <th scope="col" aria-label="Actions" />
            </tr>
          </thead>
          <tbody>
            {value.snapshots.toReversed().map((snapshot) => (
              <Row key={snapshot.snapshot_id} snapshot={snapshot} changed={reload} />
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function Row({ snapshot, changed }: { snapshot: Snapshot; changed(): void }) {
  const now = useStore(clock);
  const { busy, error, run } = useTask();
  const [open, setOpen] = useState<"" | "fork" | "delete">("");
  const { snapshot_id: id, runtime_id: source } = snapshot;
  return (
    <tr>
      <td>
        <code>{id}</code>
        <span class="detail">
          of {source ? <a href={link("sandboxes", source)}>{visible(snapshot.session_id ?? source)}</a> : "a sandbox that is gone"}
        </span>
        <Problem text={error} />
      </td>
      <td>
        <Status value={snapshot.status} />
        {snapshot.reason && <span class="detail">{snapshot.reason}</span>}
      </td>
      <td data-label="Level">{snapshot.level ?? "–"}</td>
      <td data-label="Size">{snapshot.size_bytes === null ? "–" : bytes(snapshot.size_bytes)}</td>
      <td data-label="Age" title={time(snapshot.created_at)}>{age(snapshot.created_at, now)}</td>
      <td class="buttons">
        <button type="button" disabled={busy || snapshot.status !== "ready"} onClick={() => setOpen("fork")}>
          Start from it
        </button>
        <button type="button" class="danger" disabled={busy} onClick={() => setOpen("delete")}>
          Delete
        </button>
        {open === "fork" && <Fork id={id} close={() => setOpen("")} />}
        {open === "delete" && (
          <Confirm
            title="Delete this snapshot?"
            text="Sandboxes that began with it go on."
            verb="Delete"
            close={() => setOpen("")}
            act={() =>
              void run(async () => {
                await api.deleteSnapshot(id);
                changed();
              })
            }
          />
        )}
      </td>
    </tr>
  );
}

function Fork({ id, close }: { id: string; close(): void }) {
  const [session, setSession] = useState("");
  const { busy, error, run } = useTask();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const { runtimes } = await api.startSnapshot(id, session.trim());
      for (const info of runtimes) put(info);
      close();
      if (runtimes[0]) go("sandboxes", runtimes[0].runtime_id);
    });
  };
  return (
    <Dialog title="Start a sandbox from the snapshot" close={close}>
      <form onSubmit={submit}>
        <label for="fork-session">Session</label>
        <input
          id="fork-session"
          value={session}
          placeholder="a new name"
          maxLength={256}
          autofocus
          onInput={(event) => setSession(event.currentTarget.value)}
        />
        <p class="hint">It does not have the environment variables of the first sandbox.</p>
        <Problem text={error} />
        <footer>
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button class="primary" type="submit" disabled={busy}>
            Start
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
