//! `sandbox open`.

mod browser;

use client::{Address, Client, Sandbox};

use crate::failure::Failure;
use crate::names;
use crate::output::print;
use crate::table::Table;

const VSCODE: &str = "vscode";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id, runtime id or a unique prefix
    name: String,
    /// Page to open: vscode, work-1, work-2, browser or another plugin; without one the addresses are
    /// printed
    page: Option<String>,
    /// Print the address only
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    let sandbox = names::sandbox(client, &args.name).await?;
    let Some(page) = &args.page else {
        return list(&sandbox).await;
    };
    let address = address(&sandbox, page).await?;
    print(format!("{}\n", address.url))?;
    if !args.print {
        browser::open(&address);
    }
    Ok(())
}

async fn address(sandbox: &Sandbox, page: &str) -> Result<Address, Failure> {
    match page {
        VSCODE => sandbox.vscode().await?.ok_or_else(|| {
            Failure::Usage("the sandbox has no VS Code; start it with `--plugin vscode` from an image that has it".into())
        }),
        "work-1" | "work-2" => {
            let url = sandbox.port_url(page)?.into();
            Ok(Address { name: page.into(), url, is_secret: false })
        }
        plugin => {
            let plugins = sandbox.server_info().await?.plugins;
            if !plugins.contains_key(plugin) {
                let names: Vec<_> = plugins.keys().map(String::as_str).collect();
                let text = format!("the sandbox has no page {plugin}: choose vscode, work-1, work-2 or one of its plugins ({})", names.join(", "));
                return Err(Failure::Usage(text));
            }
            Ok(sandbox.plugin_page(plugin)?)
        }
    }
}

/// Prints all addresses. Those with a key are left out, as the table may be shown to others.
async fn list(sandbox: &Sandbox) -> Result<(), Failure> {
    let mut table = Table::new(&["PAGE", "URL"]);
    table.row(["server".into(), sandbox.info().url.clone()]);
    for address in sandbox.work_addresses() {
        table.row([address.name, address.url]);
    }
    // Another server than the executor has neither.
    if let Ok(Some(_)) = sandbox.vscode().await {
        table.row([VSCODE.into(), "with a key: sandbox open NAME vscode".into()]);
    }
    let plugins = sandbox
        .server_info()
        .await
        .map(|server| server.plugins)
        .unwrap_or_default();
    for plugin in plugins.into_keys().filter(|plugin| plugin != VSCODE) {
        table.row([
            plugin.clone(),
            format!("with a key, if it has pages: sandbox open NAME {plugin}"),
        ]);
    }
    print(table.render())
}
