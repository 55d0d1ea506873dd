//! Arguments and the operations or errors that they give.

use super::super::{Click, MouseButton, Operation, parse};
use crate::error::StepError;
use crate::keys::Modifier;

fn bind(program: &str) -> Result<Operation, StepError> {
    parse(program)?.remove(0).bind()
}

/// The error of a call, be it one that waits until the element has been found.
fn error(program: &str) -> String {
    match bind(program) {
        Err(error) => format!("{error}"),
        Ok(Operation::Fill { value, .. }) => format!("deferred {}", value.unwrap_err()),
        Ok(Operation::Press { combination, .. }) => {
            format!("deferred {}", combination.unwrap_err())
        }
        Ok(Operation::Click { click, .. } | Operation::DoubleClick { click, .. }) => {
            format!("deferred {}", click.unwrap_err())
        }
        Ok(Operation::SelectOption { options, .. }) => format!("deferred {}", options.unwrap_err()),
        Ok(Operation::UploadFile { files, .. }) => format!("deferred {}", files.unwrap_err()),
        Ok(Operation::DragAndDrop { to_bid, .. }) => format!("deferred {}", to_bid.unwrap_err()),
        Ok(operation) => panic!("{program} gives {operation:?}"),
    }
}

#[test]
fn wrong_arguments_give_the_errors_of_python() {
    for (program, expected) in ERRORS {
        assert_eq!(error(program), *expected, "{program}");
    }
}

#[test]
fn calls_without_element_become_typed_operations() {
    let focus_tab = |index| Operation::TabFocus { index };
    for (program, operation) in [
        ("noop()", Operation::Noop { wait_ms: 1000.0 }),
        ("noop(-5)", Operation::Noop { wait_ms: -5.0 }),
        ("noop(wait_ms=.5)", Operation::Noop { wait_ms: 0.5 }),
        (
            "goto('u')",
            Operation::Goto {
                url: "u".to_owned(),
            },
        ),
        ("go_back()", Operation::GoBack),
        ("go_forward()", Operation::GoForward),
        ("new_tab()", Operation::NewTab),
        ("tab_close()", Operation::TabClose),
        ("tab_focus(-1)", focus_tab(-1)),
        ("tab_focus(index=True)", focus_tab(1)),
        (
            "scroll(delta_y=1, delta_x=-50.2)",
            Operation::Scroll {
                delta_x: -50.2,
                delta_y: 1.0,
            },
        ),
        (
            "send_msg_to_user('x')",
            Operation::SendMessage {
                text: "x".to_owned(),
            },
        ),
        (
            "report_infeasible('x')",
            Operation::ReportInfeasible {
                reason: "x".to_owned(),
            },
        ),
    ] {
        assert_eq!(bind(program), Ok(operation), "{program}");
    }
}

#[test]
fn calls_on_elements_become_typed_operations() {
    let bid = || "3".to_owned();
    let click = |button, modifiers: &[Modifier]| Operation::Click {
        bid: bid(),
        click: Ok(Click {
            button,
            modifiers: modifiers.to_vec(),
        }),
    };
    let fill = |enable_autocomplete_menu| Operation::Fill {
        bid: bid(),
        value: Ok("x".to_owned()),
        enable_autocomplete_menu,
    };
    let select = |options: &[&str]| Operation::SelectOption {
        bid: bid(),
        options: Ok(options.iter().map(ToString::to_string).collect()),
    };
    let upload = |files: &[&str]| Operation::UploadFile {
        bid: bid(),
        files: Ok(files.iter().map(ToString::to_string).collect()),
    };
    for (program, operation) in [
        ("fill('3', 'x')", fill(false)),
        (
            "fill('3', value='x', enable_autocomplete_menu=True)",
            fill(true),
        ),
        ("clear('3')", Operation::Clear { bid: bid() }),
        ("select_option('3', 'a')", select(&["a"])),
        ("select_option('3', ['a', 'b'])", select(&["a", "b"])),
        ("select_option('3', ('a',))", select(&["a"])),
        ("select_option('3', {'a': 1})", select(&["a"])),
        ("select_option('3', None)", select(&[])),
        ("click('3')", click(MouseButton::Left, &[])),
        ("click('3', None, None)", click(MouseButton::Left, &[])),
        ("click('3', 'right')", click(MouseButton::Right, &[])),
        (
            "click('3', button='middle', modifiers=('Shift', 'ControlOrMeta'))",
            click(MouseButton::Middle, &[Modifier::Shift, Modifier::Control]),
        ),
        (
            "dblclick('3')",
            Operation::DoubleClick {
                bid: bid(),
                click: Ok(Click::default()),
            },
        ),
        ("hover('3')", Operation::Hover { bid: bid() }),
        ("focus('3')", Operation::Focus { bid: bid() }),
        (
            "press('3', 'Shift+a')",
            Operation::Press {
                bid: bid(),
                combination: Ok("Shift+a".to_owned()),
            },
        ),
        (
            "drag_and_drop('3', to_bid='4')",
            Operation::DragAndDrop {
                from_bid: bid(),
                to_bid: Ok("4".to_owned()),
            },
        ),
        ("upload_file('3', 'a')", upload(&["a"])),
        ("upload_file('3', ['a', 'b'])", upload(&["a", "b"])),
        ("upload_file('3', [])", upload(&[])),
    ] {
        assert_eq!(bind(program), Ok(operation), "{program}");
    }
}

// One line for each call.
#[rustfmt::skip]
const ERRORS: &[(&str, &str)] = &[
    ("click()", "TypeError: click() missing 1 required positional argument: 'bid'"),
    ("fill()", "TypeError: fill() missing 2 required positional arguments: 'bid' and 'value'"),
    ("fill('1')", "TypeError: fill() missing 1 required positional argument: 'value'"),
    ("fill('1','x','y')", "TypeError: fill() takes 2 positional arguments but 3 were given"),
    (
        "click('3','left',[],1)",
        "TypeError: click() takes from 1 to 3 positional arguments but 4 were given",
    ),
    ("new_tab(1)", "TypeError: new_tab() takes 0 positional arguments but 1 was given"),
    ("goto('a','b')", "TypeError: goto() takes 1 positional argument but 2 were given"),
    ("noop(1,2)", "TypeError: noop() takes from 0 to 1 positional arguments but 2 were given"),
    ("noop(1,2,wait_ms=3)", "TypeError: noop() got multiple values for argument 'wait_ms'"),
    ("fill('1',5)", "deferred Error: Locator.fill: value: expected string, got number"),
    (
        "fill('1',None)",
        "deferred TypeError: Frame.fill() missing 1 required positional argument: 'value'",
    ),
    ("fill('1',True)", "deferred Error: Locator.fill: value: expected string, got boolean"),
    ("fill('1',[1])", "deferred Error: Locator.fill: value: expected string, got object"),
    ("fill('1','x',bid='2')", "TypeError: fill() got multiple values for argument 'bid'"),
    ("fill('1','x',foo='2')", "TypeError: fill() got an unexpected keyword argument 'foo'"),
    ("fill(foo=1)", "TypeError: fill() got an unexpected keyword argument 'foo'"),
    ("fill(bid='1')", "TypeError: fill() missing 1 required positional argument: 'value'"),
    ("scroll('a',1)", "Error: Mouse.wheel: delta_x: expected float, got string"),
    ("scroll(None,1)", "Error: Mouse.wheel: delta_x: expected float, got undefined"),
    ("scroll(1,'b')", "Error: Mouse.wheel: delta_y: expected float, got string"),
    ("scroll('a','b')", "Error: Mouse.wheel: delta_x: expected float, got string"),
    ("scroll(True,1)", "Error: Mouse.wheel: delta_x: expected float, got boolean"),
    ("scroll([1],1)", "Error: Mouse.wheel: delta_x: expected float, got object"),
    ("noop('a')", "Error: Page.wait_for_timeout: wait_timeout: expected float, got string"),
    ("noop(None)", "Error: Page.wait_for_timeout: wait_timeout: expected float, got undefined"),
    ("noop(True)", "Error: Page.wait_for_timeout: wait_timeout: expected float, got boolean"),
    ("goto(5)", "Error: Page.goto: url: expected string, got number"),
    ("goto(None)", "TypeError: Frame.goto() missing 1 required positional argument: 'url'"),
    ("goto(['u'])", "Error: Page.goto: url: expected string, got object"),
    (
        "click('3','foo')",
        "deferred Error: Locator.click: button: expected one of (left|right|middle)",
    ),
    ("click('3',5)", "deferred Error: Locator.click: button: expected one of (left|right|middle)"),
    (
        "click('3',button='x',modifiers=['y'])",
        "deferred Error: Locator.click: modifiers[0]: expected one of (Alt|Control|ControlOrMeta|Meta|Shift)",
    ),
    (
        "click('3',modifiers=['y'])",
        "deferred Error: Locator.click: modifiers[0]: expected one of (Alt|Control|ControlOrMeta|Meta|Shift)",
    ),
    (
        "click('3',modifiers=['Shift','y'])",
        "deferred Error: Locator.click: modifiers[1]: expected one of (Alt|Control|ControlOrMeta|Meta|Shift)",
    ),
    (
        "click('3',modifiers='Shift')",
        "deferred Error: Locator.click: modifiers: expected array, got string",
    ),
    (
        "click('3',modifiers=[None])",
        "deferred Error: Locator.click: modifiers[0]: expected one of (Alt|Control|ControlOrMeta|Meta|Shift)",
    ),
    (
        "click('3',modifiers=5)",
        "deferred Error: Locator.click: modifiers: expected array, got number",
    ),
    (
        "click('3',modifiers={})",
        "deferred Error: Locator.click: modifiers: expected array, got object",
    ),
    (
        "click('3',modifiers={'Shift':1})",
        "deferred Error: Locator.click: modifiers: expected array, got object",
    ),
    ("select_option('2',5)", "deferred TypeError: 'int' object is not iterable"),
    (
        "select_option('2',[5])",
        "deferred Error: Locator.select_option: options[0].valueOrLabel: expected string, got number",
    ),
    (
        "select_option('2',['x',None])",
        "deferred Error: Locator.select_option: options[1].valueOrLabel: expected string, got object",
    ),
    ("select_option('2',1.5)", "deferred TypeError: 'float' object is not iterable"),
    ("select_option('2',True)", "deferred TypeError: 'bool' object is not iterable"),
    ("send_msg_to_user(5)", "ValueError: Forbidden value: 5 is not a string"),
    ("send_msg_to_user(None)", "ValueError: Forbidden value: None is not a string"),
    (
        "send_msg_to_user([1,'a',1.0,True])",
        "ValueError: Forbidden value: [1, 'a', 1.0, True] is not a string",
    ),
    ("report_infeasible(5)", "ValueError: Forbidden value: 5 is not a string"),
    ("tab_focus('a')", "TypeError: list indices must be integers or slices, not str"),
    ("tab_focus(None)", "TypeError: list indices must be integers or slices, not NoneType"),
    ("tab_focus(1.0)", "TypeError: list indices must be integers or slices, not float"),
    ("tab_focus([1])", "TypeError: list indices must be integers or slices, not list"),
    ("tab_focus((1,))", "TypeError: list indices must be integers or slices, not tuple"),
    ("tab_focus({})", "TypeError: list indices must be integers or slices, not dict"),
    ("press('1',5)", "deferred Error: Locator.press: key: expected string, got number"),
    (
        "press('1',None)",
        "deferred TypeError: Frame.press() missing 1 required positional argument: 'key'",
    ),
    ("hover(5)", "ValueError: expected a string, got 5"),
    ("hover([1,'a',{'b':(1,)}])", "ValueError: expected a string, got [1, 'a', {'b': (1,)}]"),
    ("drag_and_drop('3',5)", "deferred ValueError: expected a string, got 5"),
    ("drag_and_drop(1,5)", "ValueError: expected a string, got 1"),
    ("upload_file('4',5)", "deferred AttributeError: 'int' object has no attribute 'get'"),
    ("upload_file('4',None)", "deferred AttributeError: 'NoneType' object has no attribute 'get'"),
    (
        "upload_file('4',['a.txt',5])",
        "deferred Error: File paths cannot be mixed with buffers",
    ),
    ("upload_file('4',[5])", "deferred AttributeError: 'int' object has no attribute 'get'"),
    ("upload_file('4',{})", "deferred KeyError: 'name'"),
    ("upload_file('4',1.5)", "deferred AttributeError: 'float' object has no attribute 'get'"),
    ("upload_file('4',True)", "deferred AttributeError: 'bool' object has no attribute 'get'"),
    ("noop(1e999)", "NameError: name 'inf' is not defined"),
    ("send_msg_to_user([-1e999])", "NameError: name 'inf' is not defined"),
    ("clear(5)", "ValueError: expected a string, got 5"),
    ("focus(None)", "ValueError: expected a string, got None"),
    (
        "dblclick('3','foo')",
        "deferred Error: Locator.click: button: expected one of (left|right|middle)",
    ),
    ("dblclick()", "TypeError: dblclick() missing 1 required positional argument: 'bid'"),
    (
        "select_option()",
        "TypeError: select_option() missing 2 required positional arguments: 'bid' and 'options'",
    ),
    ("scroll(1e400,1)", "NameError: name 'inf' is not defined"),
];
