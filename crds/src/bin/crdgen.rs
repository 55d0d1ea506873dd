//! Writes every CRD into the directory given as the only argument.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os()
        .nth(1)
        .filter(|argument| !argument.as_encoded_bytes().starts_with(b"-"))
        .ok_or("usage: crdgen DIRECTORY")?;
    let directory = PathBuf::from(directory);
    std::fs::create_dir_all(&directory)?;
    for (file, yaml) in crds::schema::manifests()? {
        std::fs::write(directory.join(file), yaml)?;
    }
    Ok(())
}
