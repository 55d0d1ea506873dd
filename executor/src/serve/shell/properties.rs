//! Properties of the terminal for any output of programs: the result does not depend on the
//! pieces in which output arrives, no program can forge or break a report, memory is bounded, and
//! plain text stays as it is.

use unicode_width::UnicodeWidthChar as _;

use super::scanner::Scanner;
use super::screen::Screen;

const TOKEN: &str = "TOK";
const REPORT: &[u8] =
    b"\x1b]TOK\x1f3\x1f77\x1f5\x1f900\x1fuser\x1fhost\x1f/bin\x1f/w\x07\x1fx\x1fTOK\x07";

/// Checks the properties for bytes of a terminal with the token `TOK`.
pub fn screen(bytes: &[u8]) {
    let mut shown = play([bytes]);
    let forgeable = bytes
        .windows(TOKEN.len())
        .any(|part| part == TOKEN.as_bytes());
    assert!(forgeable || (shown.0.prompts == 0 && shown.0.report.is_none()));
    check(&shown.0);
    pieces_do_not_matter(bytes);
    a_report_is_read(&mut shown, forgeable);
    all_is_reported(&mut shown.0);
    if !forgeable {
        changes_are_reported(bytes);
    }
    plain_text_is_kept(&plain(&String::from_utf8_lossy(bytes)));
}

fn play<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Screen, Scanner) {
    let (mut screen, mut scanner) = (Screen::new(), Scanner::new(TOKEN));
    for piece in pieces {
        screen.take(piece, &mut scanner);
    }
    (screen, scanner)
}

fn check(screen: &Screen) {
    screen.text.check();
    let text = screen.unreported_text();
    assert!(!text.contains(|character: char| character.is_control() && character != '\n'));
}

/// The report at the end ends every unfinished sequence.
fn pieces_do_not_matter(bytes: &[u8]) {
    let bytes = [bytes, REPORT].concat();
    let whole = play([bytes.as_slice()]).0;
    same(&whole, &play(bytes.chunks(1)).0);
    same(&whole, &play(uneven(&bytes)).0);
}

/// Pieces whose lengths depend on the bytes.
fn uneven(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some(first) = bytes.first() {
        let (piece, rest) = bytes.split_at(bytes.len().min(1 + usize::from(*first % 61)));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn same(one: &Screen, other: &Screen) {
    let state = |screen: &Screen| {
        (
            screen.prompts,
            screen.at_prompt,
            screen.earlier_output.clone(),
        )
    };
    assert_eq!(state(one), state(other));
    assert_eq!(one.report, other.report);
    assert!(one.text == other.text, "{:?} {:?}", one.text, other.text);
}

/// A report is read after any unfinished sequence.
fn a_report_is_read((screen, scanner): &mut (Screen, Scanner), forgeable: bool) {
    let prompts = screen.prompts;
    screen.take(REPORT, scanner);
    if forgeable {
        return;
    }
    assert!(screen.at_prompt && screen.prompts == prompts + 1);
    let report = screen.report.as_ref().expect("a report");
    assert_eq!((report.exit_code, report.background_pid), (3, 77));
    assert_eq!((report.command_id, report.shell), (5, 900));
    assert_eq!(report.working_dir, "/w\u{7}\u{1f}x");
    check(screen);
}

fn all_is_reported(screen: &mut Screen) {
    screen.mark_reported();
    assert_eq!(screen.unreported_text(), "");
}

/// Text that is not reported again is as it was when it was reported.
fn changes_are_reported(bytes: &[u8]) {
    let (before, after) = bytes.split_at(bytes.len() / 2);
    let was = main_text(play([before]).0);
    let is = main_text(play([bytes]).0);
    let (mut screen, mut scanner) = play([before]);
    screen.mark_reported();
    screen.take(after, &mut scanner);
    let new = main_text(screen);
    let kept = is.strip_suffix(new.as_str()).expect("the end of it");
    assert!(was.contains(kept.trim_end()), "{was:?} {is:?} {new:?}");
}

/// Text of the main screen.
fn main_text(mut screen: Screen) -> String {
    screen.text.leave_alternate();
    screen.text.unreported_text()
}

/// Keeps visible characters and newlines.
fn plain(text: &str) -> String {
    let visible = |character: &char| {
        !character.is_control() && character.width().is_some_and(|width| width > 0)
    };
    text.chars()
        .filter(|character| *character == '\n' || visible(character))
        .collect()
}

fn plain_text_is_kept(text: &str) {
    let written = text.replace('\n', "\r\n");
    let (screen, _) = play(uneven(written.as_bytes()));
    let lines: Vec<_> = text
        .split('\n')
        .map(|line| line.trim_end_matches(' '))
        .collect();
    let shown = screen.text.unreported_text();
    assert_eq!(
        shown.trim_end_matches('\n'),
        lines.join("\n").trim_end_matches('\n')
    );

    let (mut screen, mut scanner) = play([]);
    let mut reported = String::new();
    for piece in uneven(written.as_bytes()) {
        screen.take(piece, &mut scanner);
        reported.push_str(&screen.text.unreported_text());
        screen.mark_reported();
    }
    let solid = |text: &str| text.replace([' ', '\n'], "");
    assert_eq!(solid(&reported), solid(text));
}
