//! Agent skills in a real kernel (`docs/specs/executor.md`, section 5.4).

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::client::read_head;
use crate::fixture::ServerFixture;
use crate::plugins::{all_users, openhands, with_plugins};
use crate::transfer::fields;

#[test]
fn skills_are_imported_under_their_names() {
    let fixture = with_plugins(&[]);
    let names = "open_file goto_line scroll_down scroll_up search_dir search_file find_file parse_pdf \
                 parse_docx parse_latex parse_pptx file_editor";
    let code =
        format!("print([name for name in '{names}'.split() if not callable(globals().get(name))])");
    assert_eq!(fixture.cell(&code), "[]", "5.4 names");
    assert_eq!(fixture.cell("'parse_image' in globals()"), "False");
    for name in ["OPENAI_API_KEY", "SANDBOX_ENV_OPENAI_API_KEY"] {
        let keyed = with_plugins(&[(name, "x")]);
        let all = "callable(parse_audio) and callable(parse_image) and callable(parse_video)";
        assert_eq!(keyed.cell(all), "True");
    }
}

#[test]
fn repository_skills_import_their_library_at_the_first_call() {
    let directory = tempfile::tempdir().unwrap();
    let package = directory.path().join("openhands_aci/indexing/locagent");
    fs::create_dir_all(&package).unwrap();
    let tools =
        "def search_code_snippets(terms, line_nums=None): return f'found {terms} {line_nums}'";
    fs::write(package.join("tools.py"), tools).unwrap();
    let path = directory.path().to_str().unwrap();
    let fixture = with_plugins(&[("PYTHONPATH", path)]);
    let imported = "import sys; print('openhands_aci' in sys.modules)";
    assert_eq!(fixture.cell(imported), "False");
    let call = "print(search_code_snippets(['x'], line_nums=[1]), callable(get_entity_contents))";
    assert_eq!(fixture.cell(call), "found ['x'] [1] True");
    assert_eq!(fixture.cell(imported), "True");
}

/// Accepts one request to the model API and answers it.
fn answer_one(listener: &TcpListener, status: &str, answer: &Value) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let head = read_head(&mut reader);
    let length = head.to_ascii_lowercase();
    let (_, length) = length.split_once("content-length: ").unwrap();
    let mut body = vec![0; length.lines().next().unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let text = answer.to_string();
    let length = text.len();
    let reply =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{text}");
    stream.write_all(reply.as_bytes()).unwrap();
    head + &String::from_utf8_lossy(&body)
}

#[test]
fn model_skills_send_the_key() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1/", listener.local_addr().unwrap());
    let fixture = with_plugins(&[("OPENAI_API_KEY", "the-key"), ("OPENAI_BASE_URL", &base)]);
    fs::write(fixture.root.join("file"), b"\xff\xd8bytes").unwrap();
    let reply = json!({"choices": [{"message": {"content": "a cat"}}]});
    let ask = |code: &str, status: &str, answer: &Value| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| answer_one(&listener, status, answer));
            let text = fixture.cell(code);
            (asked.join().unwrap(), text)
        })
    };
    let (request, text) = ask("parse_image('file', 'What?')", "200 OK", &reply);
    assert_eq!(text, "[Reading image file from file]\na cat");
    let start = "POST /v1/chat/completions HTTP/1.1\r\n";
    let key = "Authorization: Bearer the-key\r\n";
    let is_keyed = request.starts_with(start) && request.contains(key);
    assert!(is_keyed, "{request}");
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["model"], "gpt-4o");
    let content = &body["messages"][0]["content"];
    assert_eq!(content[0]["text"], "What?");
    let url = "data:image/jpeg;base64,/9hieXRlcw==";
    assert_eq!(content[1]["image_url"]["url"], url);

    let (request, text) = ask("parse_audio('file')", "200 OK", &json!({"text": "hello"}));
    assert_eq!(text, "[Transcribing audio file from file]\nhello");
    for part in [
        "POST /v1/audio/translations HTTP/1.1\r\n",
        "name=\"model\"\r\n\r\nwhisper-1\r\n",
        "name=\"file\"; filename=\"file\"\r\n",
        "bytes\r\n--",
    ] {
        assert!(request.contains(part), "{request}");
    }

    // Every 30th frame of a video, with a fake library.
    let film = "
import sys, types
class Film:
    def __init__(self, path): self.left = 31
    def read(self): self.left -= 1; return self.left >= 0, self.left
    def release(self): print('released')
picture = lambda kind, frame: (True, types.SimpleNamespace(tobytes=lambda: bytes([frame])))
sys.modules['cv2'] = types.SimpleNamespace(VideoCapture=Film, imencode=picture)
_post = sys.modules['agentskills_models']._describe
sys.modules['agentskills_models']._describe = lambda jpeg, task: f'{jpeg[0]} {task}'
parse_video('film', 'See')
sys.modules['agentskills_models']._describe = _post
sys.modules['cv2'] = None";
    assert_eq!(
        fixture.cell(film),
        "[Processing video file from film with frame interval 30]\n\
         film's Frame 1: 30 See\nfilm's Frame 31: 0 See\nreleased"
    );

    // Errors are printed. The key is not sent to another host.
    let refusal = json!({"error": {"message": "no such key"}});
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let host = other.local_addr().unwrap();
    let moved = format!("302 Found\r\nLocation: http://user:word@{host}/v1");
    let refused = ask("parse_image('file')", "401 Unauthorized", &refusal).1;
    let error = format!("Error with the request: HTTP status 401: {refusal}");
    assert_eq!(refused, format!("[Reading image file from file]\n{error}"));
    let redirected = ask("parse_audio('file')", &moved, &json!({})).1;
    let error = format!("HTTP status 302: a redirect to {host} is not followed");
    let start = "[Transcribing audio file from file]\nError transcribing audio file: ";
    assert_eq!(redirected, format!("{start}{error}"));
    assert!(other.accept().is_err(), "request to the other host");
    check_cells(
        &fixture,
        &[
            "parse_image('nope') | [Reading image file from nope]\n\
         Error with the request: [Errno 2] No such file or directory: 'nope'",
            "parse_audio('nope') | [Transcribing audio file from nope]\n\
         Error transcribing audio file: [Errno 2] No such file or directory: 'nope'",
            "parse_video('nope') | ERROR: the library opencv-python-headless is needed: \
         pip install opencv-python-headless",
        ],
    );
}

/// Runs cells one after the other; a row has a cell and its output.
fn check_cells(fixture: &ServerFixture, rows: &[&str]) {
    for row in rows {
        let [code, expected] = fields(row);
        assert_eq!(fixture.cell(code), expected, "5.4 {code}");
    }
}

fn numbered(lines: RangeInclusive<usize>, write: impl Fn(usize) -> String) -> String {
    lines.map(write).collect::<Vec<_>>().concat()
}

#[test]
fn file_skills_print_windows_of_lines() {
    let fixture = with_plugins(&[]);
    let path = fixture.root.join("f.txt");
    let text = numbered(1..=250, |line| format!("Line {line}\n"));
    fs::write(&path, text).unwrap();
    let shown = path.display();
    let window = |first: usize, last: usize| {
        let lines = numbered(first..=last, |line| format!("{line}|Line {line}\n"));
        let above = match first - 1 {
            0 => "(this is the beginning of the file)".to_owned(),
            above => format!("({above} more lines above)"),
        };
        let below = match 250 - last {
            0 => "(this is the end of the file)".to_owned(),
            below => format!("({below} more lines below)"),
        };
        format!("[File: {shown} (250 lines total)]\n{above}\n{lines}{below}")
    };
    let hint = "\n[Use `scroll_down` to view the next 100 lines of the file!]";
    let hidden = fixture.root.join(".hidden");
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join("g"), "in a hidden directory\n").unwrap();
    fs::write(fixture.root.join(".h"), "in a hidden file\n").unwrap();
    for (code, expected) in [
        ("scroll_down()", "ERROR: No file open. Use the open_file function first.".to_owned()),
        ("search_file('x')", "ERROR: No file specified or open. Use the open_file function first.".to_owned()),
        ("open_file('f.txt')", window(1, 100) + hint),
        ("scroll_down()", window(101, 201)),
        ("scroll_down()", window(151, 250)),
        ("goto_line(240)", window(151, 250)),
        ("scroll_up()", window(140, 240)),
        ("open_file('f.txt', 125, 10)", window(120, 130) + hint),
        ("open_file('f.txt', 251)", "ERROR: Line number must be between 1 and 250".to_owned()),
        ("goto_line(0)", "ERROR: Line number must be between 1 and 250.".to_owned()),
        ("open_file('nope')", "ERROR: File nope not found.".to_owned()),
        ("search_file('Line 24')", format!("[Found 11 matches for \"Line 24\" in {shown}]\nLine 24: Line 24\n{}[End of matches for \"Line 24\" in {shown}]",
            numbered(240..=249, |line| format!("Line {line}: Line {line}\n")))),
        ("search_file('zzz', 'f.txt')", "[No matches found for \"zzz\" in f.txt]".to_owned()),
        ("search_dir('Line 250')", "[Found 1 matches for \"Line 250\" in ./]\n./f.txt (Line 250): Line 250\n[End of matches for \"Line 250\" in ./]".to_owned()),
        ("search_dir('in a hidden')", "[Found 1 matches for \"in a hidden\" in ./]\n./.hidden/g (Line 1): in a hidden directory\n[End of matches for \"in a hidden\" in ./]".to_owned()),
        ("search_dir('zzz', '.')", "No matches found for \"zzz\" in .".to_owned()),
        ("search_dir('zzz', 'nope')", "ERROR: Directory nope not found".to_owned()),
        ("find_file('f.t')", "[Found 1 matches for \"f.t\" in ./]\n./f.txt\n[End of matches for \"f.t\" in ./]".to_owned()),
        ("find_file('zzz')", "[No matches found for \"zzz\" in ./]".to_owned()),
    ] {
        assert_eq!(fixture.cell(code), expected, "5.4 {code}");
    }
}

/// Calls `file_editor` and parses its output.
fn edit(fixture: &ServerFixture, arguments: &str) -> Value {
    let text = fixture.cell(&format!("print(file_editor({arguments}))"));
    let (first, rest) = text.split_once('\n').unwrap();
    let (answer, last) = rest.split_once('\n').unwrap();
    let mark = first.strip_prefix("<oh_aci_output_").unwrap();
    let digits = mark.strip_suffix('>').unwrap();
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(digits.len() == 32 && is_hex, "{first}");
    assert_eq!(last, format!("</oh_aci_output_{mark}"));
    serde_json::from_str(answer).unwrap()
}

#[test]
fn file_editor_shares_the_history_of_the_edit_action() {
    for fixture in all_users() {
        let path = fixture.root.join("e.txt").display().to_string();
        let output = format!("File created successfully at: {path}");
        let expected = json!({"output": output, "error": null, "path": path, "prev_exist": false,
            "old_content": null, "new_content": "a\nb\n", "formatted_output_and_error": output});
        let edit =
            |command: &str, more: &str| edit(&fixture, &format!("'{command}', '{path}'{more}"));
        assert_eq!(edit("create", ", file_text='a\\nb\\n'"), expected);
        assert_eq!(fixture.output("stat -c %U e.txt"), fixture.username);
        let changed = edit("str_replace", ", old_str='b', new_str='c'");
        let contents = [&changed["old_content"], &changed["new_content"]];
        assert_eq!(contents, ["a\nb\n", "a\nc\n"]);
        assert_eq!(changed["prev_exist"], true);
        // The action undoes an edit of the skill, and the other way round.
        let act = |args: Value| fixture.act("edit", &args);
        act(json!({"path": path, "command": "undo_edit"}));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        act(json!({"path": path, "command": "insert", "insert_line": 0, "new_str": "0"}));
        edit("undo_edit", "");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        let view = edit("view", ", view_range=[2, 2]")["output"].clone();
        assert!(view.as_str().unwrap().contains("     2\tb"), "{view}");
        let error = "Parameter `old_str` is required for command: str_replace.";
        let refused = json!({"output": null, "error": error, "formatted_output_and_error": format!("ERROR:\n{error}")});
        assert_eq!(edit("str_replace", ""), refused);
        let line = edit("insert", ", insert_line='x', new_str=''");
        let error = "Invalid insert_line value: 'x'. Expected an integer.";
        assert_eq!(line["error"], error);
    }
}

#[test]
fn file_editor_has_the_rights_of_the_user() {
    let Some(fixture) = openhands() else {
        return;
    };
    let answer = edit(&fixture, "'create', '/etc/new', file_text=''");
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("Permission denied"), "{answer}");
}

#[test]
fn office_documents_are_parsed_without_libraries() {
    let fixture = with_plugins(&[]);
    let make = r#"
import zipfile
w = 'http://schemas.openxmlformats.org/wordprocessingml/2006/main'
a = 'http://schemas.openxmlformats.org/drawingml/2006/main'
with zipfile.ZipFile('d.docx', 'w') as z:
    z.writestr('word/document.xml', f'<w:document xmlns:w="{w}"><w:p><w:r><w:t>one</w:t><w:tab/><w:t>two</w:t></w:r></w:p><w:p/></w:document>')
with zipfile.ZipFile('p.pptx', 'w') as z:
    for n in (10, 2):
        z.writestr(f'ppt/slides/slide{n}.xml', f'<s xmlns:a="{a}"><a:p><a:r><a:t>slide {n}</a:t></a:r></a:p></s>')
"#;
    fixture.cell(make);
    check_cells(
        &fixture,
        &[
            "parse_docx('d.docx') | [Reading DOCX file from d.docx]\n@@ Page 1 @@\none\ttwo\n\n@@ Page 2 @@",
            "parse_pptx('p.pptx') | [Reading PowerPoint file from p.pptx]\n\
         @@ Slide 1 @@\nslide 2\n\n@@ Slide 2 @@\nslide 10",
        ],
    );
}

#[test]
fn pdf_and_latex_are_parsed_with_libraries() {
    let fixture = with_plugins(&[]);
    let make = r"
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject
writer = PdfWriter()
font = DictionaryObject({NameObject('/Type'): NameObject('/Font'), NameObject('/Subtype'): NameObject('/Type1'), NameObject('/BaseFont'): NameObject('/Helvetica')})
for text in ('first', 'second'):
    page = writer.add_blank_page(200, 200)
    page[NameObject('/Resources')] = DictionaryObject({NameObject('/Font'): DictionaryObject({NameObject('/F1'): font})})
    content = DecodedStreamObject()
    content.set_data(f'BT /F1 12 Tf 10 100 Td ({text}) Tj ET'.encode())
    page[NameObject('/Contents')] = writer._add_object(content)
writer.write('d.pdf')
open('d.tex', 'w').write(r'\textbf{bold} and $\alpha$')
";
    let written = fixture.cell(make);
    assert!(!written.contains("Error"), "{written}");
    check_cells(
        &fixture,
        &[
            "parse_pdf('d.pdf') | [Reading PDF file from d.pdf]\n\
         @@ Page 1 @@\nfirst\n\n@@ Page 2 @@\nsecond",
            "parse_latex('d.tex') | [Reading LaTex file from d.tex]\nbold and α",
        ],
    );
    let path = fixture.root.join("d.pdf").display().to_string();
    let view = edit(&fixture, &format!("'view', '{path}', view_range=[1, 2]"));
    let shown = format!("Here's the result of running `cat -n` on {path}:\n");
    let expected = shown + "     1\t@@ Page 1 @@\n     2\tfirst\n";
    assert_eq!(view["output"], expected);
    // In a Python without the libraries.
    fixture.cell("import sys\nfor name in ('pypdf', 'PyPDF2', 'pylatexenc.latex2text'): sys.modules[name] = None");
    check_cells(
        &fixture,
        &[
            "parse_pdf('d.pdf') | ERROR: the library pypdf is needed: pip install pypdf",
            "parse_latex('d.tex') | ERROR: the library pylatexenc is needed: pip install pylatexenc",
        ],
    );
}
