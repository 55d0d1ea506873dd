//! `sandbox-standalone images`: the image store from the command line, beside a running server.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use images::{Freed, Image, ImageStore, Limits, Puller, Reference, Registry, StoredImage};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use tokio::time::sleep;

use crate::app::image_pulls;
use crate::args::{Args, ImagesCommand};
use crate::node;

/// Time between two updates of a progress bar.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Runs one command. Results go to the standard output, progress to the standard error if it is a
/// terminal.
#[tokio::main]
pub async fn run(args: &Args, command: &ImagesCommand) -> anyhow::Result<()> {
    operator::kubernetes::client::install_crypto();
    let store = ImageStore::open(&store_path(&args.state_dir))?;
    match command {
        ImagesCommand::Pull { images } => pull(args, store, images).await?,
        ImagesCommand::Load { file, name } => load(&store, file, name.as_deref())?,
        ImagesCommand::Save { images, output } => save(&store, images, output)?,
        ImagesCommand::Push { image, to } => {
            push(args, &store, image, to.as_deref().unwrap_or(image)).await?;
        }
        ImagesCommand::Ls => print!("{}", table(&store.list()?, SystemTime::now())),
        ImagesCommand::Rm { images } => remove(&store, images)?,
        ImagesCommand::Prune => println!("{}", summary(store.prune()?)),
    }
    Ok(())
}

fn store_path(state_dir: &Path) -> std::path::PathBuf {
    node::image_store(&crate::app::node_state(state_dir))
}

fn parse(name: &str) -> anyhow::Result<Reference> {
    name.parse().with_context(|| format!("image {name:?}"))
}

async fn pull(args: &Args, store: ImageStore, names: &[String]) -> anyhow::Result<()> {
    let config = image_pulls(&args.registries)?;
    let puller = Puller::new(
        store,
        Registry::new(&config.registries)?,
        config.layer_limits,
    );
    for name in names {
        let pull = puller.start(&parse(name)?, &config.credentials);
        let mut progress = pull.progress();
        let bar = progress_bar(name)?;
        let drawing = async {
            while progress.changed().await.is_ok() {
                let state = *progress.borrow_and_update();
                bar.set_length(state.total);
                bar.set_position(state.downloaded);
                bar.set_message(format!("{}/{} unpacked", state.unpacked, state.layers));
                sleep(DRAW_INTERVAL).await;
            }
            std::future::pending().await
        };
        let outcome = tokio::select! {
            outcome = pull.finish() => outcome,
            never = drawing => never,
        };
        bar.finish_and_clear();
        println!("{name} {}", outcome?.digest);
    }
    Ok(())
}

fn progress_bar(name: &str) -> anyhow::Result<ProgressBar> {
    let template = "{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {msg}";
    let style = ProgressStyle::with_template(template)?.progress_chars("=> ");
    let bar = ProgressBar::no_length().with_style(style);
    Ok(bar.with_prefix(name.to_owned()))
}

fn load(store: &ImageStore, file: &Path, name: Option<&str>) -> anyhow::Result<()> {
    let name = name.map(parse).transpose()?;
    let bar = spinner(format!("loading {}", file.display()));
    let loaded = images::load(store, file, name.as_ref(), &Limits::default());
    bar.finish_and_clear();
    let names = loaded.with_context(|| file.display().to_string())?;
    for name in names {
        println!("{}", name.whole());
    }
    Ok(())
}

fn save(store: &ImageStore, names: &[String], output: &Path) -> anyhow::Result<()> {
    let mut saved = Vec::new();
    for name in names {
        saved.push(find(store, name)?);
    }
    let file = File::create_new(output);
    let file = file.with_context(|| output.display().to_string())?;
    let bar = spinner(format!("saving {}", output.display()));
    let written = images::save(store, &saved, bar.wrap_write(&file));
    let written = written.and_then(|()| file.sync_all());
    bar.finish_and_clear();
    if written.is_err() {
        // Half an archive looks like a whole one.
        let _ = std::fs::remove_file(output);
    }
    written.with_context(|| output.display().to_string())
}

fn find(store: &ImageStore, name: &str) -> anyhow::Result<(Reference, Image)> {
    let reference = parse(name)?;
    let image = store.find(&reference)?;
    let image = image.with_context(|| format!("no such image: {name}"))?;
    Ok((reference, image))
}

async fn push(args: &Args, store: &ImageStore, name: &str, target: &str) -> anyhow::Result<()> {
    let (_, image) = find(store, name)?;
    let target = parse(target)?;
    anyhow::ensure!(
        target.digest().is_none(),
        "{target} has a digest, a tag is needed"
    );
    let config = image_pulls(&args.registries)?;
    let registry = Registry::new(&config.registries)?;
    let bar = spinner(format!("pushing {}", target.whole()));
    let progress = |bytes| bar.inc(bytes);
    let pushed = images::push(
        store,
        &image,
        &target,
        &registry,
        &config.credentials,
        progress,
    )
    .await;
    bar.finish_and_clear();
    println!("{} {}", target.whole(), pushed?);
    Ok(())
}

fn spinner(message: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(DRAW_INTERVAL);
    bar
}

fn remove(store: &ImageStore, names: &[String]) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for name in names {
        if !store.remove(&parse(name)?)? {
            missing.push(name.as_str());
        }
    }
    println!("{}", summary(store.sweep()?));
    anyhow::ensure!(missing.is_empty(), "no such image: {}", missing.join(", "));
    Ok(())
}

fn summary(freed: Freed) -> String {
    let (images, bytes) = (freed.images, HumanBytes(freed.bytes));
    format!("{images} images removed, {bytes} freed")
}

/// Images in aligned columns.
fn table(images: &[StoredImage], now: SystemTime) -> String {
    let width = images.iter().map(|image| image.reference.len()).max();
    let width = width.unwrap_or_default().max("IMAGE".len());
    let mut text = format!(
        "{:width$}  {:12}  {:>10}  {:10}  USED\n",
        "IMAGE", "DIGEST", "SIZE", "CREATED"
    );
    for image in images {
        let digest: String = image.digest.hex().chars().take(12).collect();
        let created: String = image.created.chars().take(10).collect();
        let used = match now.duration_since(image.last_used) {
            _ if image.in_use => "now".into(),
            Ok(age) => format!("{} ago", indicatif::HumanDuration(age)),
            Err(_) => String::new(),
        };
        let size = HumanBytes(image.bytes).to_string();
        let _ = writeln!(
            text,
            "{:width$}  {digest:12}  {size:>10}  {created:10}  {used}",
            image.reference
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use images::Digest;

    use super::*;

    #[test]
    fn table_has_one_line_for_each_image() {
        let used = SystemTime::UNIX_EPOCH;
        let image = |reference: &str, in_use| StoredImage {
            reference: reference.into(),
            digest: Digest::of(b""),
            bytes: 3 << 20,
            created: "2026-01-02T03:04:05Z".into(),
            last_used: used,
            in_use,
        };
        let images = [image("a:1", true), image("registry.example.com/b:2", false)];
        let table = table(&images, used + Duration::from_hours(2));
        let expected = "\
IMAGE                     DIGEST              SIZE  CREATED     USED
a:1                       e3b0c44298fc    3.00 MiB  2026-01-02  now
registry.example.com/b:2  e3b0c44298fc    3.00 MiB  2026-01-02  2 hours ago
";
        assert_eq!(table, expected);
    }
}
