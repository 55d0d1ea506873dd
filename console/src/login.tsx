import { useState } from "preact/hooks";
import { callAs, gateway, logIn, loginNote } from "./api";
import { CallError } from "./errors";
import { useStore } from "./store";
import { Problem, useTask } from "./ui";

/** Asks for an API key, and checks it with a call that changes nothing. */
export function Login() {
  const [value, setValue] = useState("");
  const note = useStore(loginNote);
  const { busy, error, run } = useTask();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const apiKey = value.trim();
      if (!/^[\x21-\x7e]+$/.test(apiKey)) throw new Error("an API key has no blanks and only ASCII letters, digits and signs");
      try {
        await callAs(apiKey, "GET", "registry_prefix");
      } catch (failed) {
        const wrong = failed instanceof CallError && failed.status === 401;
        throw wrong ? new Error(wording(failed.message)) : failed;
      }
      logIn(apiKey);
    });
  };
  return (
    <main class="login">
      <form onSubmit={submit}>
        <img src="icon.svg" alt="" width="40" height="40" />
        <h1>Sandboxes</h1>
        <p class="muted">{new URL(gateway).host}</p>
        <label for="api-key">API key</label>
        <input
          id="api-key"
          type="password"
          autocomplete="off"
          spellcheck={false}
          autofocus
          required
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
        <button class="primary" type="submit" disabled={busy || !value.trim()}>
          {busy ? "Checking…" : "Log in"}
        </button>
        <Problem text={error || note} />
        <details>
          <summary>Where does a key come from?</summary>
          <p>
            An administrator makes one with <code>sandbox-operator keys</code>. On a machine without a cluster,{" "}
            <code>sandbox-standalone</code> prints it when it starts.
          </p>
          <p>The key stays in this tab: it is forgotten when you log out or close the tab.</p>
        </details>
      </form>
    </main>
  );
}

function wording(detail: string): string {
  return /expired/.test(detail) ? "this API key has expired" : "the gateway does not know this API key";
}
