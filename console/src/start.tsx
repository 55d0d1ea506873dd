import { useState } from "preact/hooks";
import { api } from "./api";
import { go } from "./route";
import { put } from "./sandboxes";
import { Dialog, Problem, useTask } from "./ui";

/** States that a pause can keep; the first is the default of the installation. */
const LEVELS = {
  "": "As the installation does",
  Workspace: "Files of the workspace",
  Root: "All changed files",
  Memory: "Files and processes",
};

/** Command of the executor, as clients send it. */
const COMMAND = "python -m openhands.runtime.action_execution_server 60000 --working-dir /workspace";

export function StartDialog({ close }: { close(): void }) {
  const [form, setForm] = useState({ image: "", session: newName(), command: COMMAND, factor: "1", level: "", environment: "" });
  const { busy, error, run } = useTask();
  const field = (name: keyof typeof form) => ({
    id: `start-${name}`,
    value: form[name],
    onInput: (event: { currentTarget: HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement }) =>
      setForm({ ...form, [name]: event.currentTarget.value }),
  });
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const info = await api.start({
        image: form.image.trim(),
        session_id: form.session.trim(),
        command: form.command.trim() || null,
        working_dir: "/workspace",
        resource_factor: Number(form.factor),
        persistence: form.level || null,
        environment: parseEnvironment(form.environment),
      });
      put(info);
      close();
      go("sandboxes", info.runtime_id);
    });
  };
  return (
    <Dialog title="Start a sandbox" close={close}>
      <form onSubmit={submit}>
        <label for="start-image">Image</label>
        <input {...field("image")} required autofocus placeholder="registry/name:tag" spellcheck={false} />
        <label for="start-session">Session</label>
        <input {...field("session")} required maxLength={256} spellcheck={false} />
        <p class="hint">Your name for the sandbox. A session that has one already gets it again, resumed if it is paused.</p>
        <details>
          <summary>Command, size, pause and environment</summary>
          <label for="start-command">Command</label>
          <input {...field("command")} spellcheck={false} />
          <p class="hint">Terminal and files need the executor, which this command starts. Empty: the image's own.</p>
          <label for="start-factor">Size, as a multiple of the standard</label>
          <input {...field("factor")} type="number" min="0.1" step="0.1" required />
          <label for="start-level">What a pause keeps</label>
          <select {...field("level")}>
            {Object.entries(LEVELS).map(([level, text]) => (
              <option key={level} value={level}>
                {text}
              </option>
            ))}
          </select>
          <label for="start-environment">Environment, one NAME=value per line</label>
          <textarea {...field("environment")} rows={4} spellcheck={false} />
        </details>
        <Problem text={error} />
        <footer>
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button class="primary" type="submit" disabled={busy}>
            {busy ? "Starting…" : "Start"}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function newName(): string {
  const letters = crypto.getRandomValues(new Uint8Array(4));
  return `console-${Array.from(letters, (byte) => (byte % 36).toString(36)).join("")}`;
}

function parseEnvironment(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(
    lines.map((line) => {
      const equals = line.indexOf("=");
      if (equals < 1) throw new Error(`the line "${line}" of the environment is not NAME=value`);
      return [line.slice(0, equals).trim(), line.slice(equals + 1)];
    }),
  );
}
