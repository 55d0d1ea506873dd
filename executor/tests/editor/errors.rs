//! Errors of the editor and the order of its checks (`docs/specs/executor.md`, section 6.4).

use super::check_errors;

#[test]
fn path_errors() {
    check_errors(&[
        "6.4 create on an existing path | x | command=create; file_text=y | \
         Invalid `path` parameter: {}/f. File already exists at: {}/f. Cannot overwrite files \
         using command `create`.",
        "6.4 the path comes before the parameters | x | command=create | \
         Invalid `path` parameter: {}/f. File already exists at: {}/f. Cannot overwrite files \
         using command `create`.",
        "6.4 missing path | - | command=str_replace; old_str=a; new_str=b | \
         Invalid `path` parameter: {}/f. The path {}/f does not exist. Please provide a valid path.",
        "6.4 view of a missing path | - | command=view | \
         Invalid `path` parameter: {}/f. The path {}/f does not exist. Please provide a valid path.",
        "6.4 undo on a missing path | - | command=undo_edit | \
         Invalid `path` parameter: {}/f. The path {}/f does not exist. Please provide a valid path.",
        "6.4 unknown command on a missing path | - | command=zap | \
         Invalid `path` parameter: {}/f. The path {}/f does not exist. Please provide a valid path.",
        "6.4 relative path | x | command=view; path=nope | \
         Invalid `path` parameter: nope. The path should be an absolute path, starting with `/`.",
        "6.4 relative path that exists | x | command=view; path=./f | \
         Invalid `path` parameter: f. The path should be an absolute path, starting with `/`. \
         Maybe you meant {}/f?",
        "6.4 empty path | x | command=view; path= | \
         Invalid `path` parameter: .. The path should be an absolute path, starting with `/`. \
         Maybe you meant {}?",
        "6.4 relative path comes before all else | x | command=zap; path=nope | \
         Invalid `path` parameter: nope. The path should be an absolute path, starting with `/`.",
        "6.4 edit of a directory | x | command=str_replace; path={}; old_str=a | \
         Invalid `path` parameter: {}. The path {} is a directory and only the `view` command can \
         be used on directories.",
        "6.4 unknown command on a directory | x | command=zap; path={}/ | \
         Invalid `path` parameter: {}. The path {} is a directory and only the `view` command can \
         be used on directories.",
        "6.4 create of a document | x | command=create; path={}/a.pdf; file_text= | \
         Invalid `path` parameter: {}/a.pdf. The path {}/a.pdf points to a binary file (.pdf) and \
         only the `view` command can be used on supported binary files.",
    ]);
}

#[test]
fn parameter_errors() {
    check_errors(&[
        "6.4 create without file_text | x | command=create; path={}/g | \
         Parameter `file_text` is required for command: create.",
        "6.4 str_replace without old_str | x | command=str_replace | \
         Parameter `old_str` is required for command: str_replace.",
        "6.4 equal strings | x | command=str_replace; old_str=x; new_str=x | \
         Invalid `new_str` parameter: x. No replacement was performed. `new_str` and `old_str` \
         must be different.",
        "6.4 equal strings that are not there | x | command=str_replace; old_str=; new_str= | \
         Invalid `new_str` parameter: . No replacement was performed. `new_str` and `old_str` \
         must be different.",
        "6.4 insert without anything | x | command=insert | \
         Parameter `insert_line` is required for command: insert.",
        "6.4 insert without new_str | x | command=insert; insert_line=0 | \
         Parameter `new_str` is required for command: insert.",
        "6.4 insert_line too large | a\nb\n | command=insert; insert_line=3; new_str=x | \
         Invalid `insert_line` parameter: 3. It should be within the range of allowed values: \
         [0, 2]",
        "6.4 insert_line negative | a\nb | command=insert; insert_line=-1; new_str=x | \
         Invalid `insert_line` parameter: -1. It should be within the range of allowed values: \
         [0, 2]",
        "6.4 insert_line in an empty file |  | command=insert; insert_line=1; new_str=x | \
         Invalid `insert_line` parameter: 1. It should be within the range of allowed values: \
         [0, 0]",
        "6.4 insert_line no number | x | command=insert; insert_line=abc; new_str=x | \
         Invalid insert_line value: 'abc'. Expected an integer.",
        "6.4 insert_line no number, before the path | x | \
         command=view; path=nope; insert_line=1.5 | \
         Invalid insert_line value: '1.5'. Expected an integer.",
    ]);
}

#[test]
fn content_errors() {
    check_errors(&[
        "6.4 no match | abc\n | command=str_replace; old_str=x y; new_str=z | \
         No replacement was performed, old_str `x y` did not appear verbatim in {}/f.",
        "6.4 no match, stripped | abc\n | command=str_replace; old_str=  x \n; new_str=z | \
         No replacement was performed, old_str `x` did not appear verbatim in {}/f.",
        "6.4 two matches | x\n\n\n\n\n\nx x\n | command=str_replace; old_str=x; new_str=z | \
         No replacement was performed. Multiple occurrences of old_str `x` in lines [1, 7]. \
         Please ensure it is unique.",
        "6.4 two matches on one line | a a\n | command=str_replace; old_str=a; new_str=z | \
         No replacement was performed. Multiple occurrences of old_str `a` in lines [1]. \
         Please ensure it is unique.",
        "6.4 two matches once stripped | a\na\n | command=str_replace; old_str= a ; new_str=z | \
         No replacement was performed. Multiple occurrences of old_str `a` in lines [1, 2]. \
         Please ensure it is unique.",
        "6.4 empty old_str | a\nb\nc\n | command=str_replace; old_str=; new_str=z | \
         No replacement was performed. Multiple occurrences of old_str `` in lines [1, 2, 3, 4]. \
         Please ensure it is unique.",
        "6.4 binary content | a\0b | command=str_replace; old_str=a; new_str=z | \
         File validation failed for {}/f: File appears to be binary and this file type cannot be \
         read or edited by this tool.",
        "6.4 insert into binary content | \x7fELF\x01\0<ff> | \
         command=insert; insert_line=0; new_str=z | \
         File validation failed for {}/f: File appears to be binary and this file type cannot be \
         read or edited by this tool.",
        "6.4 unknown command | x | command=zap | \
         Unrecognized command zap. The allowed commands for the oh_editor tool are: view, create, \
         str_replace, insert, undo_edit",
        "6.4 no command | x |  | \
         Unrecognized command . The allowed commands for the oh_editor tool are: view, create, \
         str_replace, insert, undo_edit",
        "6.4 no history | x | command=undo_edit | No edit history found for {}/f.",
        "6.4 create with a missing parent | x | command=create; path={}/e/new.py; file_text= | \
         Ran into [Errno 2] No such file or directory: '{}/e/new.py' while trying to write to \
         {}/e/new.py",
        "6.4 create below a file | x | command=create; path={}/f/g; file_text= | \
         Ran into [Errno 20] Not a directory: '{}/f/g' while trying to write to {}/f/g",
        "6.4 a character that the encoding lacks | d<e9>j<e0> vu, tr<e8>s bien\n | \
         command=str_replace; old_str=vu; new_str=字 | \
         Ran into 'windows-1252' codec can't encode character '字' in position 5: character maps \
         to <undefined> while trying to write to {}/f",
    ]);
}
