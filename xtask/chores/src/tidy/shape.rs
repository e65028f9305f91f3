//! How a source file looks: short functions, a paragraph at its top, a reason beside every exception.

use super::{File, problem, product_files, rust_files};

/// A function should fit on a screen.
const LONGEST_FUNCTION: usize = 70;

pub(super) fn functions_fit_on_a_screen(files: &[File]) -> Vec<String> {
    product_files(files).flat_map(long_functions).collect()
}

fn long_functions(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().take_while(|line| *line != "mod tests {").collect();
    let measured = lines.iter().enumerate().filter(|(_, line)| is_function(line));
    let lengths = measured.map(|(at, _)| (at, function_length(lines.get(at..).unwrap_or_default())));
    let long = lengths.filter(|(_, length)| *length > LONGEST_FUNCTION);
    long.map(|(at, length)| problem(file, at, &format!("{length} lines, the limit is {LONGEST_FUNCTION}")))
        .collect()
}

fn is_function(line: &str) -> bool {
    let before_the_name = line.trim_start().split("fn ").next().unwrap_or_default();
    let qualifier = |word: &str| {
        word.starts_with("pub") || word.ends_with(')') || word.starts_with('"') || is_function_keyword(word)
    };
    line.contains("fn ") && before_the_name.split_whitespace().all(qualifier)
}

fn is_function_keyword(word: &str) -> bool {
    ["const", "async", "unsafe", "extern", "default"].contains(&word)
}

/// The code is formatted, so a function ends at the first line that is indented like its start and closes it.
fn function_length(from: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let depth = from.first().map(|line| indent(line)).unwrap_or_default();
    let closes = |line: &&str| indent(line) == depth && (line.ends_with('}') || line.ends_with(';'));
    from.iter().position(closes).map_or(from.len(), |last| last + 1)
}

pub(super) fn modules_say_what_they_are(files: &[File]) -> Vec<String> {
    let silent = product_files(files).filter(|file| !file.text.starts_with("//! "));
    silent
        .map(|file| problem(file, 0, "opens without a `//!` paragraph: what it is, what it must never do"))
        .collect()
}

/// A lint is switched off only with a reason: `reason = "…"`, or a comment on the same or the previous line.
pub(super) fn every_exception_has_a_reason(files: &[File]) -> Vec<String> {
    rust_files(files).flat_map(bare_exceptions).collect()
}

fn bare_exceptions(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let begins = |line: &str| {
        let inside = line.trim_start().strip_prefix('#').map(|rest| rest.trim_start_matches(['!', '[']));
        inside.is_some_and(|inside| inside.starts_with("allow(") || inside.starts_with("expect("))
    };
    let is_bare = |at: &usize| {
        let from = lines.get(*at..).unwrap_or_default();
        let last = from.iter().position(|line| line.contains(")]")).unwrap_or_default();
        let attribute = from.get(..=last).unwrap_or_default().join(" ");
        let comment_above =
            at.checked_sub(1).and_then(|above| lines.get(above)).is_some_and(|line| is_comment(line));
        !attribute.contains("reason = ") && !attribute.contains("//") && !comment_above
    };
    let bare = (0..lines.len()).filter(|at| lines.get(*at).is_some_and(|line| begins(line))).filter(is_bare);
    bare.map(|at| problem(file, at, "a lint is switched off without a reason; add `reason = \"…\"`"))
        .collect()
}

/// A comment that is not documentation.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{accepts, bites, found};
    use super::*;

    fn function(start: &str, body_lines: usize) -> String {
        format!("impl A {{\n    {start} {{\n{}    }}\n}}\n", "        x();\n".repeat(body_lines))
    }

    #[test]
    fn a_function_of_71_lines_is_too_long() {
        let path = "crates/a/src/deep/er.rs";
        for start in
            ["fn f()", "pub(crate) async fn f()", "pub extern \"C\" fn f()", "pub(in crate::a) const fn f()"]
        {
            bites(functions_fit_on_a_screen, path, &function(start, 69));
            accepts(functions_fit_on_a_screen, path, &function(start, 68));
        }
    }

    #[test]
    fn a_long_function_is_found_where_it_starts() {
        let text = format!("fn one() -> u8 {{ 1 }}\n\n{}", function("fn f()", 69));
        let expected = ["crates/a/src/b.rs:4: 71 lines, the limit is 70"];
        assert_eq!(found(functions_fit_on_a_screen, "crates/a/src/b.rs", &text), expected);
    }

    #[test]
    fn a_declaration_without_a_body_and_a_long_test_are_not_long_functions() {
        let declarations = "    fn f(\n        &self,\n    ) -> u8;\n".repeat(30);
        accepts(functions_fit_on_a_screen, "crates/a/src/b.rs", &format!("trait A {{\n{declarations}}}\n"));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}", function("fn f()", 80));
        accepts(functions_fit_on_a_screen, "crates/a/src/b.rs", &tests);
        accepts(functions_fit_on_a_screen, "crates/a/tests/b.rs", &function("fn f()", 80));
    }

    #[test]
    fn a_module_opens_with_a_paragraph() {
        bites(modules_say_what_they_are, "crates/a/src/b.rs", "use std::fmt;\n");
        bites(modules_say_what_they_are, "xtask/src/b.rs", "");
        accepts(modules_say_what_they_are, "crates/a/src/b.rs", "//! What it is.\n");
        accepts(modules_say_what_they_are, "crates/a/build.rs", "fn main() {}\n");
    }

    #[test]
    fn a_lint_that_is_switched_off_without_a_reason_is_found() {
        let rule = every_exception_has_a_reason;
        for bare in [
            "#[allow(dead_code)]",
            "    #[expect(dead_code)]",
            "/// Documented.\n#[allow(dead_code)]",
            "#![allow(\n    dead_code,\n    missing_docs\n)]\n// too late",
        ] {
            bites(rule, "crates/a/tests/b.rs", bare);
        }
        for fine in [
            "#[allow(dead_code, reason = \"x\")]",
            "#[allow(dead_code)] // x",
            "// x\n#![allow(dead_code)]",
            "#[expect(\n    dead_code,\n    reason = \"x\"\n)]",
        ] {
            accepts(rule, "crates/a/tests/b.rs", fine);
        }
    }
}
