//! Properties of the gateway's parsers of untrusted input.
//!
//! The fuzzer searches for inputs that break a property (`operator/fuzz`); the tests replay its
//! seed inputs. A violated property panics.

pub use super::proxy::properties::route;

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn route_property_holds_for_all_seeds() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/route");
        let seeds: Vec<_> = std::fs::read_dir(seeds).unwrap().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            let seed = seed.unwrap().path();
            println!("{}", seed.display());
            super::route(&std::fs::read(seed).unwrap());
        }
    }
}
