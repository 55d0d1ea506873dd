//! Properties of the parsers of untrusted input: bytes of a terminal, paths, archives, actions.
//!
//! The fuzzer looks for inputs that break a property (`executor/fuzz`), and the tests replay the
//! inputs it starts from. A property that does not hold panics.

pub use super::api::properties::action;
pub use super::shell::properties::screen;
pub use super::transfer::properties::archive;

/// Names of files, as clients and archives give them: a line each.
pub fn paths(input: &[u8]) {
    let input = String::from_utf8_lossy(input);
    let names: Vec<_> = input.split('\n').take(8).collect();
    super::editor::properties::paths(&names);
    for name in names {
        super::transfer::properties::name(name);
        super::api::properties::download(name);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(target: &str, property: fn(&[u8])) {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        let seeds: Vec<_> = std::fs::read_dir(seeds.join(target)).unwrap().collect();
        assert!(!seeds.is_empty(), "{target}");
        for seed in seeds {
            let seed = seed.unwrap().path();
            println!("{}", seed.display());
            property(&std::fs::read(seed).unwrap());
        }
    }

    #[test]
    fn properties_hold_for_all_seeds() {
        replay("screen", super::screen);
        replay("paths", super::paths);
        replay("archive", super::archive);
        replay("action", super::action);
    }
}
