// The frame of all pages: login, navigation, and how current the page is.

import { useEffect } from "preact/hooks";
import { key, logOut } from "./api";
import { Builds } from "./builds";
import { Login } from "./login";
import { SandboxList } from "./list";
import { Pools } from "./pools";
import { link, route } from "./route";
import { SandboxPage } from "./sandbox";
import { connection, connectionError, follow } from "./sandboxes";
import { Snapshots } from "./snapshots";
import { useStore } from "./store";
import { Empty } from "./ui";
import { Usage, loadUsage, usage } from "./usage";

export function App() {
  const apiKey = useStore(key);
  const { page, id } = useStore(route);
  useEffect(() => {
    if (apiKey === null) return;
    void loadUsage();
    return follow(apiKey);
  }, [apiKey]);
  if (apiKey === null) return <Login />;
  return (
    <>
      <Header page={page} />
      <main>{content(page, id)}</main>
    </>
  );
}

function content(page: string, id: string) {
  if (page === "sandboxes") return id ? <SandboxPage key={id} id={id} /> : <SandboxList />;
  if (page === "snapshots") return <Snapshots />;
  if (page === "builds") return <Builds id={id} />;
  if (page === "pools") return <Pools />;
  if (page === "usage") return <Usage />;
  return (
    <Empty title="There is no such page">
      <a href={link("sandboxes")}>Sandboxes</a>
    </Empty>
  );
}

function Header({ page }: { page: string }) {
  const hasUsage = useStore(usage) !== null;
  const pages = [
    ["sandboxes", "Sandboxes"],
    ["snapshots", "Snapshots"],
    ["pools", "Pools"],
    ["builds", "Builds"],
    ...(hasUsage ? [["usage", "Usage"]] : []),
  ] as [string, string][];
  return (
    <header class="top">
      <a class="mark" href={link("sandboxes")}>
        <img src="icon.svg" alt="" width="22" height="22" />
        <span>Sandbox Operator</span>
      </a>
      <nav aria-label="Pages">
        {pages.map(([name, text]) => (
          <a key={name} href={link(name)} aria-current={page === name ? "page" : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <ConnectionMark />
      <button class="quiet" type="button" onClick={() => logOut()}>
        Log out
      </button>
    </header>
  );
}

const CONNECTION_TEXT = { connecting: "connecting", live: "live", polling: "every 3 s", offline: "not current" };

function ConnectionMark() {
  const state = useStore(connection);
  const error = useStore(connectionError);
  return (
    <span class={`connection ${state}`} role="status" title={error || undefined}>
      {CONNECTION_TEXT[state]}
    </span>
  );
}
