//! Binary `sandbox-executor`.

fn main() -> std::process::ExitCode {
    executor::run()
}
