//! The tables of worst days in `docs/safety.md` name tests that exist: a promise whose test was renamed or deleted is not one.

use super::{File, problem};

const PAGE: &str = "docs/safety.md";

/// Where the tables begin and end.
const SECTION: (&str, &str) = ("## Worst days", "\n## ");

pub(super) fn worst_days_name_tests(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let Some((before, section)) = page.text.split_once(SECTION.0) else {
        return vec![problem(page, 0, "has no section on worst days")];
    };
    let section = section.split_once(SECTION.1).map_or(section, |(section, _)| section);
    let first_line = before.lines().count();
    let rows = section.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    let named = rows.flat_map(|(at, row)| tests_of(row).into_iter().map(move |name| (first_line + at, name)));
    let missing = named.filter(|(_, name)| !exists(files, name));
    missing.map(|(at, name)| problem(page, at, &format!("no test is called `{name}`"))).collect()
}

/// The names in the last cell of a row.
fn tests_of(row: &str) -> Vec<&str> {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
    let last = if cells.len() > 2 { cells.last().copied().unwrap_or_default() } else { "" };
    last.split('`').skip(1).step_by(2).collect()
}

fn exists(files: &[File], name: &str) -> bool {
    let is_test = |file: &&File| [".rs", ".ts", ".py", ".js"].iter().any(|end| file.path.ends_with(end));
    let escaped = name.replace('\'', "\\'");
    files.iter().filter(is_test).any(|file| {
        let (function, def) = (format!("fn {name}("), format!("def {name}("));
        let titles = [format!("'{escaped}'"), format!("\"{name}\"")];
        file.text.contains(&function)
            || file.text.contains(&def)
            || titles.iter().any(|title| file.text.contains(title.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::file;
    use super::*;

    #[test]
    fn a_test_that_is_gone_is_found() {
        let page = |name: &str| {
            let text = format!(
                "# Page\n\n## Worst days\n\n| day | what | `{name}` |\n\n## Next\n\n| a | b | `c` |\n"
            );
            file(PAGE, &text)
        };
        let tests = || file("crates/a/tests/b.rs", "#[test]\nfn it_holds() {}\n");
        let titled = || file("web/tests/c.spec.ts", "test('it isn\\'t lost', () => {})\n");
        assert_eq!(worst_days_name_tests(&[page("it_holds"), tests()]), [""; 0]);
        assert_eq!(worst_days_name_tests(&[page("it isn't lost"), titled()]), [""; 0]);
        let found = worst_days_name_tests(&[page("it_held"), tests()]);
        assert_eq!(found, ["docs/safety.md:5: no test is called `it_held`"]);
    }
}
