//! Cases in text files: `== name`, the page, and then `> call`s, `= entries of the log` and
//! `! lines of the error`. The part behind `@ name` is a further page. `{other}` is this case on
//! another site, `{same}` on this one, `{cwd}` the directory of files to upload.

#[derive(Debug, Default)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Name and text; that of the first page is empty.
    pub(super) pages: Vec<(&'static str, String)>,
    pub(super) calls: Vec<&'static str>,
    pub(super) log: &'static str,
    /// First line in full, parts of others.
    pub(super) error: Vec<&'static str>,
}

pub(super) fn parse(text: &'static str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        if mark == "==" {
            cases.push(Case {
                name: rest,
                pages: vec![("", String::new())],
                ..Case::default()
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match mark {
            ">" => case.calls.push(rest),
            "=" => case.log = rest,
            "!" => case.error.push(rest),
            "@" => case.pages.push((rest, String::new())),
            _ => {
                let (_, page) = case.pages.last_mut().unwrap();
                page.push_str(line);
                page.push('\n');
            }
        }
    }
    cases
}
