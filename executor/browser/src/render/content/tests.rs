use super::*;
use crate::snapshot::ax::{AxNode, AxValue};
use crate::snapshot::element::ElementProperties;

const TREE_HEAD: &str = "Accessibility tree of the COMPLETE webpage:\nNote: [bid] is the unique \
    alpha-numeric identifier at the beginning of lines for each element in the AXTree. Always use \
    bid to refer to elements in your actions.\n\
    ============== BEGIN accessibility tree ==============\n";
const TREE_FOOT: &str = "\n============== END accessibility tree ==============\n";

#[test]
fn program_content_shows_state_and_tree() {
    let content = ProgramContent {
        url: "http://h/",
        focused_bid: Some("4"),
        screenshot_path: Some("/w/s.png"),
        error: None,
        tree: &TreeBlock::Complete("RootWebArea 'T'".to_owned()),
    };
    let state = "[Current URL: http://h/]\n[Focused element bid: 4]\n\
        [Screenshot saved to: /w/s.png]\n\n[Action executed successfully.]\n";
    let expected = format!("{state}{TREE_HEAD}RootWebArea 'T'{TREE_FOOT}");
    assert_eq!(content.to_string(), expected);
}

#[test]
fn program_content_shows_the_errors_of_action_and_tree() {
    let content = ProgramContent {
        url: "",
        focused_bid: None,
        screenshot_path: None,
        error: Some("ValueError: no"),
        tree: &TreeBlock::Failed(TreeError::Empty),
    };
    let expected = "[Current URL: ]\n[Focused element bid: None]\n\n\
        ================ BEGIN error message ===============\n\
        The following error occurred when executing the last action:\nValueError: no\n\
        ================ END error message ===============\n\n\
        [Error encountered when processing the accessibility tree: 'nodes']";
    assert_eq!(content.to_string(), expected);
}

#[test]
fn visit_content_shows_the_page_and_the_error_if_there_is_one() {
    let page = "============== BEGIN webpage content ==============\n# T\n\
        ============== END webpage content ==============\n";
    let mut content = VisitContent {
        url: "http://h/",
        error: None,
        page: "# T",
    };
    assert_eq!(
        content.to_string(),
        format!("[Current URL: http://h/]\n{page}")
    );
    content.error = Some("Error: no");
    let error = "================ BEGIN error message ===============\n\
        The following error occurred when trying to visit the URL:\nError: no\n\
        ================ END error message ===============\n";
    assert_eq!(
        content.to_string(),
        format!("[Current URL: http://h/]\n{error}{page}")
    );
}

#[test]
fn long_tree_is_shown_as_far_as_it_is_visible() {
    let text = |text: &str| {
        Some(AxValue {
            value: Some(text.into()),
        })
    };
    let node = |id: &str, children: &[&str]| AxNode {
        node_id: id.to_owned(),
        role: text("link"),
        name: text("é"),
        child_ids: children.iter().map(ToString::to_string).collect(),
        bid: Some(id.to_owned()),
        ..AxNode::default()
    };
    let tree = AxTree {
        nodes: vec![node("1", &["2"]), node("2", &[])],
    };
    let mut elements = ElementTable::default();
    elements
        .0
        .insert("2".to_owned(), ElementProperties::default());
    let complete = "[1] link 'é'\n\t[2] link 'é'";
    for (max, expected) in [
        (None, TreeBlock::Complete(complete.to_owned())),
        (Some(26), TreeBlock::Complete(complete.to_owned())),
        (Some(25), TreeBlock::Visible("[1] link 'é'".to_owned())),
    ] {
        assert_eq!(TreeBlock::new(&tree, &elements, max), expected);
    }
    let visible = TreeBlock::Visible(String::new()).to_string();
    assert!(visible.starts_with(
        "Accessibility tree of the VISIBLE portion of the webpage (accessibility tree of complete \
         webpage is too large and you may need to scroll to view remaining portion of the \
         webpage):\nNote: [bid] is"
    ));
}
