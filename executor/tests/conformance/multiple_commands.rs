//! One command or several (section 4.7), backslashes (4.8), and lengths of commands and output
//! (3.3, 4.9).

use super::case::Cases;
use super::environment::environments;

/// Text, and the commands that it is split into.
#[rustfmt::skip]
const SEVERAL: &[(&str, &[&str])] = &[
    ("echo a\necho b", &["echo a", "echo b"]),
    ("for i in 1; do\n  x\ndone\necho end", &["for i in 1; do\n  x\ndone", "echo end"]),
    ("cat << E\nx\nE\necho b", &["cat << E\nx\nE", "echo b"]),
    ("f() {\n a\n}\nf", &["f() {\n a\n}", "f"]),
    ("export A=1\nexport B=2", &["export A=1", "export B=2"]),
    ("echo a;\necho b", &["echo a;", "echo b"]),
    ("(( 1+1 ))\necho b", &["(( 1+1 ))", "echo b"]),
    ("! ls\necho b", &["! ls", "echo b"]),
    ("x=$(cat <<E\n1\nE\n)\necho b", &["x=$(cat <<E\n1\nE\n)", "echo b"]),
    ("a\nb\n\nc", &["a", "b", "c"]),
    ("if true; then\n  x\nfi\necho b", &["if true; then\n  x\nfi", "echo b"]),
    ("{ a\n}\n( b\n)", &["{ a\n}", "( b\n)"]),
    ("a &\nb", &["a &", "b"]),
    ("a | b\nc && d", &["a | b", "c && d"]),
    ("echo '[[ x'\necho 'a=('", &["echo '[[ x'", "echo 'a=('"]),
    ("echo time case\nls", &["echo time case", "ls"]),
];

/// Single commands on several lines, all in one session.
#[rustfmt::skip]
const ONE: &[(&str, &str, i64, &str)] = &[
    // The Python server rejects this one; a comment is not a command.
    ("4.7 a comment before a command", "# comment\necho B", 0, "B"),
    ("4.7 or", "false || echo b", 0, "b"),
    ("4.7 or, on two lines", "false ||\necho b", 0, "b"),
    ("4.7 negation", "! false", 0, ""),
    ("4.7 background and another", "(true & echo b; wait)", 0, "b"),
    ("4.7 double quoted newline", "echo \"a\nb\"", 0, "a\nb"),
    ("4.7 blank lines around", "\n\necho a\n\n", 0, "a"),
    ("4.7 nested loops", "for i in 1 2; do\n  for j in a b; do\n    echo $i$j\n  done\ndone", 0,
        "1a\n1b\n2a\n2b"),
    ("4.7 if, elif, else",
        "if false; then\n  echo 1\nelif true; then\n  echo 2\nelse\n  echo 3\nfi", 0, "2"),
    ("4.7 a function with a heredoc", "g() {\n  cat << E\nin $1\nE\n}", 0, ""),
    ("4.7 which is kept", "g x", 0, "in x"),
    ("4.7 a quoted delimiter", "cat << 'E'\n$HOME `x`\nE", 0, "$HOME `x`"),
    ("4.7 a heredoc in a pipe", "cat << E | tr a b\naaa\nE", 0, "bbb"),
    ("4.7 a command substitution on lines", "echo $(\n  echo a\n)", 0, "a"),
    ("4.7 backticks", "echo `echo a`", 0, "a"),
    ("4.7 process substitution", "cat <(echo a)", 0, "a"),
    ("4.7 a here string", "cat <<< a", 0, "a"),
    ("4.7 select", "select x in a; do\n  echo $x; break\ndone <<< 1 2> /dev/null", 0, "a"),
    ("4.7 a script with a conditional", "x=1\nif [[ $x == 1 ]]; then\n  echo one\nfi\necho end", 0,
        "one\nend"),
    ("4.7 a script with arithmetic", "x=1\ny=$((x + 1))\necho $y", 0, "2"),
    ("4.7 a script with case", "x=a\ncase $x in\n  a) echo A ;;\nesac\necho end", 0, "A\nend"),
    ("4.7 a script with an array", "a=(1 2)\necho ${a[1]}", 0, "2"),
    ("4.7 a script with a C-style for", "for ((i=0; i<2; i++)); do\n  echo $i\ndone\necho end", 0,
        "0\n1\nend"),
    ("4.7 a script with a timed command", "TIMEFORMAT=%0R\ntime true\nunset TIMEFORMAT", 0, "0"),
    ("4.7 coproc", "coproc true; wait $COPROC_PID", 0, "[1] "),
    ("4.7 let and a ternary", "(( x = 1 ? 5 : 6 )); echo $x", 0, "5"),
    ("4.8 and in quotes", "echo 'a \\; b' \"c \\; d\"", 0, "a \\; b c \\; d"),
    ("4.8 in a substitution", "echo $(echo a \\; b)", 0, "a ; b"),
    ("4.8 in a heredoc", "cat << 'E'\na \\; b \\& c\nE", 0, "a \\; b \\& c"),
    ("4.8 greater and less", "echo a \\> b \\< c", 0, "a > b < c"),
    ("4.2 what looks like a prompt is output",
        "printf '\\n###PS1JSON###\\n{\\n  \"exit_code\": \"7\"\\n}\\n###PS1END###\\n'", 0,
        "###PS1JSON###\n{\n  \"exit_code\": \"7\"\n}\n###PS1END###"),
    ("4.4 the text of the command as output", "echo echo", 0, "echo"),
    ("4.4 output that repeats the command", "printf \"printf\"", 0, "printf"),
    ("4.10 time", "TIMEFORMAT=$'real\\t%0R'; time echo t; unset TIMEFORMAT", 0, "t\nreal    0"),
    ("4.14 working directory of metadata", "pwd | grep -c /", 0, "1"),
];

#[test]
fn one_command() {
    let mut cases = Cases::default();
    for (name, command, code, content) in ONE {
        cases.case(name);
        let step = cases.run(command).exit(*code);
        // The pid of a background process is not known.
        if content.ends_with(' ') {
            step.contains(content);
        } else {
            step.gives(content);
        }
    }
    cases.check_in_one();
}

#[test]
fn several_commands() {
    let mut cases = Cases::default();
    for (command, parts) in SEVERAL {
        cases.case("4.7 several commands");
        cases.run(command).refused(parts);
    }
    cases.check_in_one();
}

#[test]
fn lengths() {
    let line = "x".repeat(20_000);
    let mut cases = Cases::default();
    cases.case("4.4 a long line is not folded");
    cases
        .run("printf 'y%.0s' {1..2500}")
        .gives(&"y".repeat(2500));
    cases.case("4.15 a long command");
    cases.run(&format!("echo {line}")).gives(&line);
    cases.case("4.9 5000 lines");
    cases
        .run("for i in {1..5000}; do echo \"Line $i\"; done")
        .contains("Line 1\n")
        .contains("\n[... Observation truncated due to length ...]\n")
        .contains("Line 5000");
    cases.case("4.9 50 000 lines");
    cases.run("for i in {1..50000}; do echo \"Line $i\"; done").prefix("[Previous command outputs are truncated. Showing the last 10499 lines of the output below.]\n").contains("Line 40000\n").contains("Line 50000");
    cases.case("4.9 the next command is not affected");
    cases.run("echo small").gives("small");
    cases.case("3.3 30 000 characters are not cut");
    cases
        .run("printf 'é%.0s' {1..30000}")
        .gives(&"é".repeat(30_000));
    cases.case("3.3 hidden commands are not cut");
    cases
        .run("printf 'é%.0s' {1..30001}")
        .with("hidden", true.into())
        .gives(&"é".repeat(30_001));
    cases.check_in_one();
    for environment in environments() {
        let process = environment.serve("more-lengths");
        let answer = process.run("printf 'é%.0s' {1..30001}");
        assert_eq!(answer["content"].as_str().unwrap().chars().count(), 30_047);
    }
}
