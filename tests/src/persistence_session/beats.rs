//! A program that counts, and writes each number to the workspace with a token that it has in memory
//! only. The file tells of every process that ever ran, and in which order.

/// Its argument is the memory of the process in MiB.
pub const BEATS: &str = include_str!("beats.py");

/// Processes that have run so far: the token of each, and its last number.
pub type Runs = Vec<(String, u64)>;

/// Reads the file. No number is there twice, and none is left out: no state has run twice, and no two
/// processes at a time.
pub fn runs_of(content: &str) -> Runs {
    let mut runs = Runs::new();
    for (at, line) in content.lines().enumerate() {
        let (token, number) = line.split_once(' ').expect(line);
        let number: u64 = number.parse().expect(line);
        match runs.last_mut() {
            Some((last, before)) if last == token => {
                assert_eq!(number, *before + 1, "line {at}: {line}");
                *before = number;
            }
            _ => {
                assert_eq!(
                    number, 1,
                    "line {at}: a process goes on beside another: {line}"
                );
                runs.push((token.to_owned(), number));
            }
        }
    }
    runs
}
