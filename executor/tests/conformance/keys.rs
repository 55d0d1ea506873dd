//! Keys and input (section 4.6), and full-screen programs.

use super::case::{Case, case, check_all, check_in_one, input, run, start};
use super::environment::environments;

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn keys() {
    for environment in environments() {
        let cases = [
            case(
                "4.6 C-c at an idle prompt",
                [
                    run("C-c").exit(130).by_key('C').gives("^C"),
                    run("echo a").gives("a"),
                ],
            ),
            case(
                "4.6 C-l at an idle prompt does no harm",
                [run("C-l").by_key('L'), run("echo a").gives("a")],
            ),
            case(
                "4.6 C-\\",
                [
                    start("cat", ""),
                    input("C-\\").exit(131).by_key('\\').contains("^\\"),
                ],
            ),
            case(
                "4.6 C-d ends an input",
                [start("cat", ""), input("C-d").by_key('D').gives("")],
            ),
            case(
                "4.6 C-z suspends",
                [
                    start("cat", ""),
                    input("C-z")
                        .exit(148)
                        .by_key('Z')
                        .gives("^Z\n[1]+  Stopped                 cat"),
                    start("fg", "cat"),
                    input("C-d").by_key('D'),
                ],
            ),
            case(
                "4.6 C-c, lower and upper case",
                [start("cat", ""), input("C-C").exit(130).by_key('C')],
            ),
            case(
                "4.6 a longer word is no key",
                [run("C-cc").exit(127).contains("C-cc: command not found")],
            ),
            case(
                "4.6 a key name is a word unless input",
                [run("Up").exit(127).contains("Up: command not found")],
            ),
            case(
                "4.6 a key name in small letters is a word",
                [
                    start("read x; echo \"<$x>\"", ""),
                    input("end").gives("<end>"),
                ],
            ),
            case(
                "4.6 Tab",
                [
                    start("IFS= read x; echo \"$x\" | od -An -c | tr -s ' '", ""),
                    input("Tab").contains("\\t \\n"),
                ],
            ),
            case(
                "4.6 Up",
                [
                    start("IFS= read x; printf %q \"$x\"", ""),
                    input("Up").contains("$'\\E[A'"),
                ],
            ),
            case(
                "4.6 Enter",
                [
                    start("read x; echo \"<$x>\"", ""),
                    input("Enter").gives("<>"),
                ],
            ),
            case(
                "4.6 Escape",
                [
                    start("IFS= read x; printf %q \"$x\"", ""),
                    input("Escape").contains("$'\\E'"),
                ],
            ),
            case(
                "4.6 BSpace",
                [
                    start("IFS= read x; echo \"<$x>\"", ""),
                    input("BSpace").gives("<>"),
                ],
            ),
            case(
                "4.6 the echo of input is not told",
                [
                    start("read n; echo \"Hello $n\"", ""),
                    input("John").gives("Hello John"),
                ],
            ),
            case(
                "4.6 a password has no echo",
                [
                    start("read -sp 'Password: ' p; echo; echo \"${#p}\"", "Password:"),
                    input("secret").gives("6").lacks("secret"),
                ],
            ),
            case(
                "4.6 input on several lines",
                [
                    start("cat > f; cat f", ""),
                    input("a\nb").times_out(0.2).any_prefix(),
                    input("C-d").by_key('D').contains("a\nb"),
                ],
            ),
        ];
        check_all(&environment, &cases);
    }
}

/// Key name, and the bytes that the program reads, quoted by bash.
const NAMED: &[(&str, &str)] = &[
    ("Down", "\\E[B"),
    ("Right", "\\E[C"),
    ("Left", "\\E[D"),
    ("Home", "\\E[H"),
    ("End", "\\E[F"),
    ("PageUp", "\\E[5~"),
    ("PageDown", "\\E[6~"),
    ("F1", "\\EOP"),
    ("F4", "\\EOS"),
    ("F5", "\\E[15~"),
    ("F12", "\\E[24~"),
];

#[test]
fn named_keys() {
    for environment in environments() {
        let cases: Vec<Case> = NAMED
            .iter()
            .map(|(key, bytes)| {
                let steps = [
                    start("IFS= read -r x; printf '%q\\n' \"$x\"", ""),
                    input(key).contains(&format!("$'{bytes}'")),
                ];
                case("4.6 a key by its name", steps)
            })
            .collect();
        check_in_one(&environment, "named-keys", &cases);
    }
}

#[test]
fn full_screen_programs() {
    for environment in environments() {
        let python = [
            case(
                "4.10 python3 REPL",
                [
                    start("python3", ">>>"),
                    input("1+1").times_out(0.5).any_prefix(),
                    input("exit()"),
                ],
            ),
            case(
                "4.10 C-d ends python's input",
                [
                    start("python3 -c \"input(1)\"", "1"),
                    input("C-d").exit(1).by_key('D').contains("EOFError"),
                ],
            ),
            case(
                "4.14 an interrupted server",
                [
                    start(
                        "python3 -u -m http.server --bind 127.0.0.1 0",
                        "Serving HTTP on",
                    ),
                    input("C-c")
                        .by_key('C')
                        .contains("Keyboard interrupt received, exiting."),
                    run("echo next").gives("next"),
                ],
            ),
        ];
        check_all(&environment, &python);
        let menu = "import curses; s = curses.initscr(); s.keypad(True); s.addstr('menu'); \
                    s.refresh(); keys = [s.getch() for _ in range(3)]; curses.endwin(); print(keys)";
        let curses = [case(
            "4.6 cursor keys in a menu of curses",
            [
                start(&format!("python3 -c \"{menu}\""), "menu"),
                input("Up").times_out(0.5).any_prefix(),
                input("Home").contains("[259, 10, 262]"),
            ],
        )];
        check_all(&environment, &curses);
        let less = [case(
            "4.10 less",
            [
                run("seq 3000 > f"),
                start("less f", "999"),
                start("G", "3000").with("is_input", true.into()),
                input("q").gives(""),
                run("echo after").gives("after"),
            ],
        )];
        check_all(&environment, &less);
        let vim = [case(
            "4.10 vi",
            [
                run("printf 'one\\ntwo\\n' > f"),
                start("vi -u NONE f", "two"),
                start("ihello", "hello").with("is_input", true.into()),
                input("Escape").times_out(0.2).any_prefix(),
                input(":wq").gives(""),
                run("cat f").gives("hello\none\ntwo"),
            ],
        )];
        check_all(&environment, &vim);
    }
}
