//! The OpenAPI document, made from the routes themselves, and the page that shows it to people.

use std::fmt::Write;

use leasehold_core::wire::documents::{Held, Problem};
use leasehold_core::{JobId, LeaseId, LeaseName, Reason, RoomId};
use serde_json::{Value, json};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement};

use crate::Doors;
use crate::error::{CODES, Code};

/// The document before the routes are added to it.
pub(crate) fn begin(doors: Doors) -> OpenApi {
    let scheme =
        SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build());
    let mut components = ComponentsBuilder::new().schema_from::<Held>().schema_from::<Problem>().build();
    components.add_security_scheme("token", scheme);
    let (title, description) = match doors {
        Doors::All => (
            "Leasehold: documents, jobs and leases",
            "Locks that let one user at a time edit a document, one worker at a time run a job and one program at a time do its work, with events for every change of a document.",
        ),
        Doors::Jobs => (
            "Leasehold: jobs",
            "Locks that let one worker at a time run a job. This server has jobs only: its store has no lists and no events.",
        ),
    };
    let info = InfoBuilder::new()
        .title(title)
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(description))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some([SecurityRequirement::new("token", Vec::<String>::new())]))
        .build()
}

/// The finished document: every call says what it can be refused with.
pub(crate) fn finish(openapi: &OpenApi) -> Value {
    let mut document = serde_json::to_value(openapi).unwrap_or_default();
    let paths = document.pointer_mut("/paths").and_then(Value::as_object_mut);
    for (path, item) in paths.into_iter().flatten() {
        for operation in item.as_object_mut().into_iter().flatten().map(|(_, operation)| operation) {
            parameters_are_there_or_not(operation);
            let mut refusals = common_refusals(path, operation);
            if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
                refusals.extend(named_refusals(responses));
                add_refusals(responses, &refusals);
            }
        }
    }
    write_out_formats(&mut document);
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        schemas.insert("LockState".into(), lock_state_schema());
        schemas.insert("Problem".into(), problem_schema());
    }
    document
}

/// Replaces our own formats with the patterns and lengths that the types check: a lease id, for example, is a UUID of
/// version 4 only.
fn write_out_formats(part: &mut Value) {
    let format = match part.get("format").and_then(Value::as_str) {
        Some("uuid") => Some((LeaseId::PATTERN.to_owned(), Some((36, 36)))),
        Some("room-id") => Some((RoomId::PATTERN.to_owned(), Some((1, RoomId::MAX_BYTES)))),
        Some("room-id-or-empty") => Some((format!("^$|{}", RoomId::PATTERN), Some((0, RoomId::MAX_BYTES)))),
        Some("collection") => {
            Some((JobId::COLLECTION_PATTERN.to_owned(), Some((1, JobId::MAX_COLLECTION_BYTES))))
        }
        Some("job-id") => Some((JobId::PATTERN.to_owned(), Some((1, JobId::MAX_ID_BYTES)))),
        Some("lease-name") => Some((LeaseName::PATTERN.to_owned(), Some((1, LeaseName::MAX_BYTES)))),
        Some("reason" | "printable") => Some((Reason::PATTERN.to_owned(), None)),
        Some("job-text") => Some((r"^[^\u0000]*$".to_owned(), None)),
        Some("any-json") => {
            any_json(part);
            None
        }
        _ => None,
    };
    if let (Some((pattern, length)), Some(schema)) = (format, part.as_object_mut()) {
        schema.remove("format");
        schema.insert("pattern".into(), pattern.into());
        if let Some((least, most)) = length {
            schema.insert("minLength".into(), least.into());
            schema.insert("maxLength".into(), most.into());
        }
    }
    match part {
        Value::Object(fields) => fields.values_mut().for_each(write_out_formats),
        Value::Array(items) => items.iter_mut().for_each(write_out_formats),
        _ => {}
    }
}

/// Any JSON value, which the macros describe as a string.
fn any_json(schema: &mut Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("type");
        schema.remove("format");
    }
}

/// An optional parameter can be left out, but is never `null`.
fn parameters_are_there_or_not(operation: &mut Value) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(kind) = parameter.pointer_mut("/schema/type")
            && let Some(real) =
                kind.as_array().and_then(|kinds| kinds.iter().find(|kind| *kind != "null")).cloned()
        {
            *kind = real;
        }
    }
}

/// What a call can be refused with, whatever it does: by its path, its security and its body.
fn common_refusals(path: &str, operation: &Value) -> Vec<Code> {
    let needs_token = operation.get("security").is_none();
    let mut codes = Vec::new();
    if path.starts_with("/api/") {
        codes.extend([Code::Invalid, Code::TooManyRequests]);
    }
    if path.starts_with("/api/") || path == "/readyz" {
        codes.push(Code::Unavailable);
    }
    if needs_token {
        codes.push(Code::Unauthenticated);
    }
    if path.contains("{roomId}") {
        codes.push(Code::LockNotFound);
    }
    if path.contains("{collection}") {
        codes.push(Code::JobNotFound);
    }
    if path.contains("{name}") {
        codes.push(Code::LeaseNotFound);
    }
    if needs_token && path.contains('{') {
        codes.push(Code::NotAllowed);
    }
    if operation.get("requestBody").is_some() {
        codes.extend([Code::TooSlow, Code::TooLarge]);
        // `sendBeacon` cannot set a content type, so calls without a token accept any.
        codes.extend(needs_token.then_some(Code::UnsupportedMediaType));
    }
    codes
}

/// Takes out the refusals that the route names itself, which stand under the words of their codes.
fn named_refusals(responses: &mut serde_json::Map<String, Value>) -> Vec<Code> {
    CODES.iter().copied().filter(|code| responses.remove(code.word()).is_some()).collect()
}

/// Adds one response for each status, which describes all of its codes.
fn add_refusals(responses: &mut serde_json::Map<String, Value>, codes: &[Code]) {
    for code in CODES.iter().filter(|code| codes.contains(code)) {
        let status = code.status().as_u16().to_string();
        let said = format!("`{}`: {}.", code.word(), code.english());
        let response = responses.entry(status).or_insert_with(|| json!({ "content": problem_content() }));
        let Some(response) = response.as_object_mut() else { continue };
        let before = response.get("description").and_then(Value::as_str).map(|before| format!("{before} "));
        response.insert("description".into(), (before.unwrap_or_default() + &said).into());
        if code.says_when_to_retry() {
            response.insert("headers".into(), retry_after());
        }
    }
}

fn retry_after() -> Value {
    let schema = json!({ "type": "integer", "minimum": 1 });
    json!({ "Retry-After": { "description": "Seconds to wait before trying again.", "schema": schema } })
}

fn problem_content() -> Value {
    json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } })
}

/// Most members exist only while the document is locked; the generator would require them all.
fn lock_state_schema() -> Value {
    let base = json!({
        "type": "object",
        "required": ["roomId", "locked", "seq", "may"],
        "properties": {
            "roomId": { "type": "string", "description": "The document." },
            "locked": { "type": "boolean", "description": "Whether it is locked." },
            "seq": { "type": "integer", "format": "int64", "minimum": 0,
                     "description": "The number of the last event of this document that this state contains." },
            "may": { "$ref": "#/components/schemas/Access" }
        }
    });
    let locked = json!({ "if": { "properties": { "locked": { "const": true } } },
                         "then": { "$ref": "#/components/schemas/LockView" } });
    json!({ "description": "A document's lock, as shown to every caller who may see the document.", "allOf": [base, locked] })
}

fn problem_schema() -> Value {
    let words = |codes: &mut dyn Iterator<Item = &Code>| codes.map(|code| code.word()).collect::<Vec<_>>();
    let codes = words(&mut CODES.iter());
    let held_codes = words(&mut CODES.iter().filter(|code| code.names_holder()));
    let base = json!({
        "type": "object",
        "required": ["type", "title", "status", "code"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference", "description": "Where to read more." },
            "title": { "type": "string", "description": "What went wrong, for people, in the language of `Accept-Language`." },
            "status": { "type": "integer", "description": "The HTTP status." },
            "code": { "type": "string", "enum": codes, "description": "What went wrong, for programs. A code never changes its meaning." },
            "detail": { "type": "string", "description": "The details, and what to do." },
            "because": { "type": "string", "description": "Why the lease has ended." }
        }
    });
    let held = json!({ "if": { "properties": { "code": { "enum": held_codes } } },
                       "then": { "$ref": "#/components/schemas/Held" } });
    json!({ "description": "What went wrong (RFC 9457).", "allOf": [base, held] })
}

// --- the page ---

/// The parts of the page: their tags.
const TAGS: [&str; 6] = ["Locks", "Hand-over", "Events", "Jobs", "Leases", "Operating"];

/// A page that shows the document to people. It loads nothing from elsewhere, and needs no script.
pub(crate) fn page(document: &Value) -> String {
    let (mut body, mut contents) = (String::new(), String::new());
    for tag in TAGS {
        let operations = operations(document, tag);
        if operations.is_empty() {
            continue;
        }
        let _ = write!(body, "<h2 id=\"{tag}\">{tag}</h2>");
        let _ = write!(contents, "<li><a href=\"#{tag}\">{tag}</a><ul>");
        for (path, method, operation) in operations {
            write_operation(&mut body, path, method, operation);
            let summary = prose(operation.get("summary").and_then(Value::as_str).unwrap_or_default());
            let _ = write!(contents, "<li><a href=\"#{}\">{summary}</a></li>", anchor(path, method));
        }
        contents.push_str("</ul></li>");
    }
    write_codes(&mut body);
    write_schemas(&mut body, document);
    let text = |pointer: &str| escape(document.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title>\
         <link rel=\"icon\" type=\"image/svg+xml\" href=\"/page/icon.svg\"><link rel=\"stylesheet\" href=\"/page/docs.css\"></head><body>\
         <nav aria-label=\"Contents\"><details open><summary>Contents</summary><ul><li><a href=\"#top\">About</a></li>{contents}\
         <li><a href=\"#codes\">Codes</a></li><li><a href=\"#types\">Types</a></li></ul></details></nav>\
         <main id=\"top\"><h1>{title}</h1>\
         <p>Version {version}. {description} The same for programs: <a href=\"/openapi.json\">openapi.json</a>. \
         Who holds what at this moment: <a href=\"/\">the page of this server</a>.</p>\
         <p>Send <code>Authorization: Bearer TOKEN</code> with every call, unless its description says otherwise. The header \
         <code>Lease-Id</code> says which lock a call is about; without it, the lock of the user's tab is meant \
         (<code>X-Tab-ID</code>, <code>-</code> by default). Any call can be refused with one of the statuses {shared} and a \
         <a href=\"#type-Problem\">Problem</a>, whose <a href=\"#codes\">code</a> says why.</p>\
         <pre tabindex=\"0\">curl -X POST -H \"Authorization: Bearer $TOKEN\" $URL/api/documents/minutes/lock</pre>{body}</main></body></html>",
        title = text("/info/title"),
        version = text("/info/version"),
        description = text("/info/description"),
        shared = SHARED.map(|code| code.status().as_str().to_owned()).join(", "),
    )
}

/// The id of a call on the page.
fn anchor(path: &str, method: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("-")
}

/// The calls under a tag: those about one document first, then in the order of a lock's life.
fn operations<'a>(document: &'a Value, tag: &str) -> Vec<(&'a str, &'a str, &'a Value)> {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    let all = paths.flat_map(|(path, item)| {
        let calls = item.as_object().into_iter().flatten();
        calls.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    });
    let is_tagged = |(_, _, operation): &(&str, &str, &'a Value)| {
        operation.pointer("/tags/0").and_then(Value::as_str) == Some(tag)
    };
    let mut found: Vec<_> = all.filter(is_tagged).collect();
    let rank = |method: &str| ["post", "put", "delete", "get"].iter().position(|known| *known == method);
    found.sort_by_key(|(path, method, _)| (!path.contains("{roomId}"), path.len(), rank(method)));
    found
}

/// Refusals that most calls share, which the page describes once at its top.
const SHARED: [Code; 7] = [
    Code::Invalid,
    Code::Unauthenticated,
    Code::TooSlow,
    Code::TooLarge,
    Code::UnsupportedMediaType,
    Code::TooManyRequests,
    Code::Unavailable,
];

fn write_operation(body: &mut String, path: &str, method: &str, operation: &Value) {
    let text = |name: &str| prose(operation.get(name).and_then(Value::as_str).unwrap_or_default());
    let _ = write!(
        body,
        "<section id=\"{}\"><h3><code><span class=\"method\">{}</span> {}</code></h3><p><b>{}.</b> {}</p>",
        anchor(path, method),
        method.to_uppercase(),
        escape(path),
        text("summary"),
        text("description"),
    );
    if let Some(kind) = operation.pointer("/requestBody/content/application~1json/schema").map(type_name) {
        let _ = write!(body, "<p>Body: {kind}</p>");
    }
    body.push_str("<table>");
    for parameter in operation.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| prose(parameter.get(name).and_then(Value::as_str).unwrap_or_default());
        let (name, place, description) = (text("name"), text("in"), text("description"));
        let _ = write!(body, "<tr><td><code>{name}</code></td><td>{place}</td><td>{description}</td></tr>");
    }
    for (status, response) in operation.get("responses").and_then(Value::as_object).into_iter().flatten() {
        if SHARED.iter().any(|shared| shared.status().as_str() == status) {
            continue;
        }
        let shape =
            response.get("content").and_then(Value::as_object).and_then(|content| content.values().next());
        let shape = shape.and_then(|content| content.get("schema")).map(type_name).unwrap_or_default();
        let description = prose(response.get("description").and_then(Value::as_str).unwrap_or_default());
        let _ = write!(body, "<tr><td>{status}</td><td>{shape}</td><td>{description}</td></tr>");
    }
    body.push_str("</table></section>");
}

fn write_codes(body: &mut String) {
    body.push_str("<h2 id=\"codes\">Codes</h2><table><tr><th>code</th><th>status</th><th>English</th><th>日本語</th></tr>");
    for code in CODES {
        let (word, status) = (code.word(), code.status().as_u16());
        let (english, japanese) = (code.english(), code.japanese());
        let _ = write!(
            body,
            "<tr id=\"{word}\"><td><code>{word}</code></td><td>{status}</td><td>{english}</td><td>{japanese}</td></tr>"
        );
    }
    body.push_str("</table>");
}

fn write_schemas(body: &mut String, document: &Value) {
    body.push_str("<h2 id=\"types\">Types</h2>");
    for (name, schema) in
        document.pointer("/components/schemas").and_then(Value::as_object).into_iter().flatten()
    {
        let description = prose(schema.get("description").and_then(Value::as_str).unwrap_or_default());
        let _ = write!(
            body,
            "<section id=\"type-{name}\"><h3><code>{name}</code></h3><p>{description}</p><table>"
        );
        write_fields(body, schema);
        body.push_str("</table></section>");
    }
}

fn write_fields(body: &mut String, schema: &Value) {
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        let inherited = part.get("then").unwrap_or(part);
        if inherited.get("$ref").is_some() {
            let _ = write!(body, "<tr><td colspan=\"3\">and all of {}</td></tr>", type_name(inherited));
        }
        write_fields(body, part);
    }
    for word in schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        let _ = write!(body, "<tr><td colspan=\"3\"><code>{}</code></td></tr>", escape(word));
    }
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let description = prose(field.get("description").and_then(Value::as_str).unwrap_or_default());
        let _ = write!(
            body,
            "<tr><td><code>{name}</code></td><td>{}</td><td>{description}</td></tr>",
            type_name(field)
        );
    }
}

/// The name of a type, linked if the page describes it.
fn type_name(schema: &Value) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#type-{name}\"><code>{name}</code></a>");
    }
    let parts = schema.get("oneOf").or_else(|| schema.get("allOf")).and_then(Value::as_array);
    if let Some(named) = parts.into_iter().flatten().find(|part| part.get("$ref").is_some()) {
        return type_name(named);
    }
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "array" => {
            format!("list of {}", schema.get("items").map(type_name).unwrap_or_default())
        }
        Some(Value::String(kind)) => escape(kind),
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).next().map(escape).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Text as HTML, with code between backticks.
fn prose(text: &str) -> String {
    let parts = escape(text).split('`').map(str::to_owned).collect::<Vec<_>>();
    let coded = parts.iter().enumerate().map(|(at, part)| match at % 2 {
        1 => format!("<code>{part}</code>"),
        _ => part.clone(),
    });
    coded.collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
