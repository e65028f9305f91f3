//! Writes `web/src/border.ts`, `web/src/autosave/border.ts` and `web/src/documents/border.ts`: the types of requests and answers, and the fingerprint. A test compares it with the file in the repository; `cargo xtask web` writes it.

use leasehold_project_rules::autosave::wire::{ERROR_CODES, STATES};
use leasehold_project_rules::autosave::{MAX_RETRIES, history};
use leasehold_project_rules::fault::TABLE;
use leasehold_project_rules::options::ON_SILENCE;
use leasehold_project_rules::record::{LONGEST, Members};
use leasehold_project_rules::root::file;
use leasehold_project_rules::wire::json::camel_case;
use leasehold_project_rules::wire::shape::{FieldShape, Shape, VariantShape};
use leasehold_project_rules::{Guarantee, Operation, Say, State, Strategy};

use crate::border::{ANSWERS, FINGERPRINT, REQUESTS, RequestTable};
use crate::fields::{Field, FieldTable, Kind};
use crate::{autosave, documents};

const HEADER: &str = "\
// Made by `cargo xtask web` from crates/leasehold-wasm/src/border.rs and crates/leasehold-project-rules/src/wire.rs.
// Change those, not this.
";

const AUTOSAVE_HEADER: &str = "\
// Made by `cargo xtask web` from crates/leasehold-wasm/src/autosave.rs and crates/leasehold-project-rules/src/autosave/wire.rs.
// Change those, not this.
";

const DOCUMENTS_HEADER: &str = "\
// Made by `cargo xtask web` from crates/leasehold-wasm/src/documents.rs.
// Change that, not this.
";

/// The text of `web/src/border.ts`.
pub fn typescript() -> String {
    let mut text = String::from(HEADER);
    text += "\n/** What a module of WebAssembly must say that these declarations belong to. */\n";
    text += &format!("export const FINGERPRINT = {FINGERPRINT};\n");
    text += "\n/** The longest `.lock` that is looked at, in bytes. */\n";
    text += &format!("export const LONGEST_LOCK = {LONGEST};\n");
    text += "\n/** The names of the files of the lock; something follows the last two. */\n";
    text += &format!(
        "export const FILES = {{ lock: '{}', temporary: '{}', guard: '{}', held: '{}', draft: '{}' }} as const;\n",
        file::LOCK,
        file::LOCK_TMP,
        file::GUARD,
        file::HELD,
        file::DRAFT
    );
    let members: Vec<_> = flat(&[("lock", Members::KIND)]).iter().map(|(name, _)| camel_case(name)).collect();
    text += "\n/** The members of `.lock` that the rules know. */\n";
    text += &format!("export const MEMBERS = '{}'.split(' ');\n", members.join(" "));
    text += &requests(REQUESTS);
    for (name, words) in unions() {
        text += &format!("\nexport type {name} = {};\n", words.join(" | "));
    }
    for shape in ANSWERS.iter().copied().flatten() {
        text += &answer(shape);
    }
    text
}

/// The text of `web/src/autosave/border.ts`.
pub fn autosave_typescript() -> String {
    let mut text = String::from(AUTOSAVE_HEADER);
    text += "\n/** What a module of WebAssembly must say that these declarations belong to. */\n";
    text += &format!("export const FINGERPRINT = {};\n", autosave::FINGERPRINT);
    text += "\n/** Where an autosave keeps its files, below the project's folder. */\n";
    text += &format!(
        "export const CURRENT = '{}';\nexport const HISTORY = '{}';\n",
        history::CURRENT,
        history::HISTORY
    );
    text += &format!("export const INDEX = '{}';\n", history::INDEX);
    text += "\n/** How many retries follow a save that failed. */\n";
    text += &format!("export const MAX_RETRIES = {MAX_RETRIES};\n");
    text += &requests(autosave::REQUESTS);
    let states = STATES.iter().copied().map(quoted).collect::<Vec<_>>();
    for (name, words) in [("StateName", states), ("ErrorName", all(&ERROR_CODES))] {
        text += &format!("\nexport type {name} = {};\n", words.join(" | "));
    }
    for shape in autosave::ANSWERS {
        text += &answer(shape);
    }
    text
}

/// The text of `web/src/documents/border.ts`.
pub fn documents_typescript() -> String {
    let mut text = String::from(DOCUMENTS_HEADER);
    text += "\n/** What a module of WebAssembly must say that these declarations belong to. */\n";
    text += &format!("export const FINGERPRINT = {};\n", documents::FINGERPRINT);
    text += &requests(documents::REQUESTS);
    for shape in documents::ANSWERS {
        text += &answer(shape);
    }
    text
}

/// The requests, with the types of their fields.
fn requests(requests: &[RequestTable]) -> String {
    let mut text =
        String::from("\n/** The requests, with the types of their fields. */\nexport interface Requests {\n");
    for request in requests {
        text += &doc(request.doc, "  ");
        let fields: String = flat(request.fields).iter().map(|(name, kind)| sent(name, kind)).collect();
        text += &format!("  readonly {}: {{\n{fields}  }};\n", camel_case(request.name));
    }
    text += "}\n";
    text
}

/// The lists of words that answers choose from.
fn unions() -> [(&'static str, Vec<String>); 7] {
    let mut codes: Vec<_> =
        TABLE.iter().flat_map(|row| [Some(row.autosave), row.service]).flatten().map(quoted).collect();
    codes.sort_unstable();
    codes.dedup();
    [
        ("ErrorCode", codes),
        ("OperationWord", all(&Operation::WORDS)),
        ("StrategyWord", all(&Strategy::WORDS)),
        ("GuaranteeWord", all(&Guarantee::WORDS)),
        ("OnSilenceWord", all(&ON_SILENCE)),
        ("SayWord", all(&Say::WORDS)),
        ("StateWord", all(&State::WORDS).into_iter().chain([quoted("faulted")]).collect()),
    ]
}

/// The fields, those of groups among them.
pub(crate) fn flat(fields: &[FieldTable]) -> Vec<FieldTable> {
    let inside = |field: &FieldTable| match field.1 {
        Kind::Group(fields) => flat(fields),
        _ => vec![*field],
    };
    fields.iter().flat_map(inside).collect()
}

/// A field that is sent.
fn sent(name: &str, kind: &Kind) -> String {
    let may_be_absent = matches!(kind, Kind::Optional(_) | Kind::Json);
    let (mark, absent) = if may_be_absent { ("?", " | undefined") } else { ("", "") };
    format!("    readonly {}{mark}: {}{absent};\n", camel_case(name), kind_of(kind))
}

/// What TypeScript may send for it.
fn kind_of(kind: &Kind) -> String {
    match kind {
        Kind::Text => "string".into(),
        Kind::Number | Kind::Whole | Kind::Small => "number".into(),
        Kind::Flag => "boolean".into(),
        Kind::Json => "string | number | boolean | object".into(),
        Kind::Word(words) => words.iter().copied().map(quoted).collect::<Vec<_>>().join(" | "),
        Kind::Optional(kind) => kind_of(kind),
        Kind::Group(_) => "object".into(),
    }
}

fn all<T>(words: &[(T, &str)]) -> Vec<String> {
    words.iter().map(|(_, word)| quoted(word)).collect()
}

fn quoted(word: &str) -> String {
    format!("'{word}'")
}

fn answer(shape: &Shape) -> String {
    let head = format!("\n{}export ", doc(shape.doc, ""));
    match shape.variants {
        [VariantShape { name: "", fields, .. }] => {
            let fields: String = fields.iter().map(|field| member(field, "  ")).collect();
            format!("{head}interface {} {{\n{fields}}}\n", shape.name)
        }
        variants => {
            let variants: String = variants.iter().map(one_of).collect();
            format!("{head}type {} =\n{}", shape.name, variants.trim_end_matches('\n').to_owned() + ";\n")
        }
    }
}

fn one_of(variant: &VariantShape) -> String {
    let fields: String = variant.fields.iter().map(|field| member(field, "    ")).collect();
    let tag = format!("    readonly do: '{}';\n", camel_case(variant.name));
    format!("{}  | {{\n{tag}{fields}  }}\n", doc(variant.doc, "  "))
}

fn member(field: &FieldShape, indent: &str) -> String {
    let may_be_absent = ["Option", "Vec"].iter().any(|outer| field.kind.starts_with(outer));
    let optional = if may_be_absent { "?" } else { "" };
    let name = camel_case(field.name);
    format!("{}{indent}readonly {name}{optional}: {};\n", doc(field.doc, indent), type_of(field.kind))
}

/// The type of TypeScript for one of Rust, as JSON carries it.
fn type_of(rust: &str) -> String {
    let rust = without_space(rust).replace("<'a>", "");
    let rust = rust.strip_prefix("&'a").unwrap_or(&rust);
    let inside = |outer: &str| rust.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>')).map(type_of);
    if let Some(inner) = inside("Option<").or_else(|| inside("Box<")) {
        return inner;
    }
    if let Some(item) = inside("Vec<") {
        return format!("readonly {item}[]");
    }
    match rust {
        "String" | "str" | "&'staticstr" | "Wrong" | "LeaseId" => "string".into(),
        "u32" | "u64" => "number".into(),
        "bool" => "boolean".into(),
        "ErrorOrCode" => "ErrorView | ErrorCode".into(),
        "ProjectLockError" | "ErrorOf" => "ErrorView".into(),
        "Holder" => "HolderView".into(),
        "Ask" => "AskView".into(),
        "EventOf" => "DialectsView".into(),
        "EffectList" => "readonly EffectView[]".into(),
        name => name.into(),
    }
}

fn without_space(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

fn doc(lines: &[&str], indent: &str) -> String {
    match lines {
        [] => String::new(),
        lines => format!("{indent}/**{} */\n", lines.join(&format!("\n{indent} *"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_in_the_repository_are_what_the_declarations_say() {
        let files = [
            ("border.ts", typescript()),
            ("autosave/border.ts", autosave_typescript()),
            ("documents/border.ts", documents_typescript()),
        ];
        for (name, text) in files {
            let path = format!("{}/../../web/src/{name}", env!("CARGO_MANIFEST_DIR"));
            let known = std::fs::read_to_string(path).unwrap_or_default();
            assert!(known == text, "web/src/{name} is out of date: `cargo xtask web` writes it anew");
        }
    }

    #[test]
    fn every_type_of_rust_has_one_in_typescript() {
        assert_eq!(
            sent("lease_id", &Kind::Optional(&Kind::Text)),
            "    readonly leaseId?: string | undefined;\n"
        );
        assert_eq!(kind_of(&Kind::Word(&["free", "busy"])), "'free' | 'busy'");
        let group = Kind::Group(&[("version", Kind::Json), ("held", Kind::Flag)]);
        let names: Vec<_> =
            flat(&[("modified", Kind::Whole), ("lock", group)]).iter().map(|field| field.0).collect();
        assert_eq!(names, ["modified", "version", "held"]);
        let cases = [
            ("Option<&'a ProjectLockError>", "ErrorView"),
            ("Option<ProjectLeaseView<'a>>", "ProjectLeaseView"),
            ("Vec<StepView<'a>>", "readonly StepView[]"),
        ];
        for (rust, expected) in cases {
            assert_eq!(type_of(rust), expected, "{rust}");
        }
    }
}
