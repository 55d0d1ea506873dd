//! What must hold for everything that strangers can send to the gateway.
//!
//! The fuzzer looks for inputs that break a property (`operator/fuzz`), and the tests replay the
//! inputs it starts from. A property that does not hold panics.

pub use super::proxy::properties::route;

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn routes_hold() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/route");
        let seeds: Vec<_> = std::fs::read_dir(seeds).unwrap().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            let seed = seed.unwrap().path();
            println!("{}", seed.display());
            super::route(&std::fs::read(seed).unwrap());
        }
    }
}
