//! Size of long tests. `make test-long` sets `LONG_TESTS` and runs them at full size; `make test` runs the same tests
//! with fewer sandboxes, fewer bytes and less time.

/// Returns `full` if `LONG_TESTS` is set, otherwise `reduced`.
pub fn full_or<T>(full: T, reduced: T) -> T {
    match std::env::var_os("LONG_TESTS") {
        Some(value) if !value.is_empty() => full,
        _ => reduced,
    }
}
