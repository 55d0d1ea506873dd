//! Upload of a file that no process on the way keeps in memory.

use std::fs::{self, File};
use std::io::{self, Read as _};

use tests::cli_tools::run_checked;
use tests::page::Page;
use tests::size::full_or;

use super::log_in;
use crate::fixture::fixture;

const MIB: u64 = 1 << 20;
/// Far less than the file of a long test.
const MAX_GROWTH_BYTES: u64 = 64 * MIB;

/// Keeps what the page has said about transfers.
const RECORD: &str = "(() => { window.said = []; new MutationObserver(() => { \
    const text = document.querySelector('.transfers .text')?.innerText; \
    if (text && text !== said.at(-1)) said.push(text); \
    }).observe(document.body, {subtree: true, childList: true, characterData: true}); })()";

#[tokio::test]
async fn upload_shows_its_progress_and_is_not_kept_in_memory() {
    let Some(fixture) = fixture() else { return };
    let size = full_or(1024 * MIB, 8 * MIB);
    let local = fixture.state.path().join("large.bin");
    let mut random = File::open("/dev/urandom").unwrap().take(size);
    io::copy(&mut random, &mut File::create(&local).unwrap()).unwrap();
    let session = fixture.run("uploaded-to").await;
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.click("uploaded-to").await;
    page.click("Files").await;
    page.until("!!document.querySelector('input[type=file]')")
        .await;
    page.run(RECORD).await;

    let status = format!("/proc/{}/status", fixture.standalone.id());
    let gateway = || peak(&fs::read_to_string(&status).unwrap());
    // The shell of the agent is a child of the server.
    let server = async || peak(&session.run("cat /proc/$PPID/status").await);
    let before = [gateway(), server().await];
    page.choose_file("input[type=file]", &local).await;
    // Each step of the progress has the time that the page has for one.
    let mut seen = 0;
    while last_text(&page).await != "large.bin: done" {
        page.until(&format!("said.length > {seen}")).await;
        seen += 1;
    }
    let heap = page.run("performance.memory.usedJSHeapSize").await;
    for (process, grown) in [
        ("gateway", gateway() - before[0]),
        ("server", server().await - before[1]),
        ("page", heap.as_u64().unwrap()),
    ] {
        println!("{process}: {} MiB", grown / MIB);
        assert!(grown < MAX_GROWTH_BYTES, "{process}: {grown} bytes");
    }
    let said = page.run("said").await;
    let said: Vec<String> = serde_json::from_value(said).unwrap();
    let percent = |text: &String| {
        text.strip_prefix("large.bin: ")?
            .strip_suffix(" %")?
            .parse()
            .ok()
    };
    let percents: Vec<u8> = said.iter().filter_map(percent).collect();
    assert!(percents.is_sorted(), "{said:?}");
    assert!(percents.len() >= full_or(5, 1), "{said:?}");
    let sum = |text: String| text.split(' ').next().unwrap().to_owned();
    let digest = session.run("sha256sum /workspace/large.bin").await;
    let expected = run_checked("sha256sum", &[local.to_str().unwrap()]);
    assert_eq!(sum(digest), sum(expected));
    page.assert_clean(&[fixture.api()]).await;
}

async fn last_text(page: &Page) -> String {
    let text = page.run("said.at(-1) ?? ''").await;
    text.as_str().unwrap().to_owned()
}

/// Most memory that a process had, by its `/proc/PID/status`.
fn peak(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() << 10
}
