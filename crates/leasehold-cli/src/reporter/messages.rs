//! The messages of the Reporter: a template for each receiver, filled in, and posted where an address is configured. Templates are
//! JSON with `{{name}}` in it, and are checked when the Reporter starts, not when something burns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use leasehold_core::{Retries, RetryPolicy};
use leasehold_server::webhooks::{PostError, Target};
use leasehold_store::jitter;
use serde_json::Value;

use super::Incident;
use crate::serve::WrongUsage;

/// Where PagerDuty takes events.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

/// The templates of those who have none of their own.
const SLACK_TEMPLATE: &str = include_str!("slack.json");
const PAGERDUTY_TEMPLATE: &str = include_str!("pagerduty.json");

#[derive(clap::Args)]
pub(crate) struct MessageArgs {
    /// A folder with templates: slack.json, pagerduty.json [default: built in; `{{summary}}` and the like are filled in]
    #[arg(long, value_name = "FOLDER", env = "LEASEHOLD_TEMPLATES")]
    templates: Option<PathBuf>,
    /// A file with the address of a Slack webhook (or itself in LEASEHOLD_SLACK_URL).
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_SLACK_URL_FILE")]
    slack_url_file: Option<PathBuf>,
    /// A file with a routing key of PagerDuty (or itself in LEASEHOLD_PAGERDUTY_KEY).
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_PAGERDUTY_KEY_FILE")]
    pagerduty_key_file: Option<PathBuf>,
    /// Where PagerDuty, or what speaks its Events API v2, takes events.
    #[arg(long, value_name = "URL", env = "LEASEHOLD_PAGERDUTY_URL", default_value = PAGERDUTY)]
    pagerduty_url: String,
}

/// Who is told of an incident.
pub(crate) struct Messages(Vec<Receiver>);

struct Receiver {
    name: &'static str,
    template: Template,
    /// Nothing is sent without one.
    target: Option<Target>,
    /// A secret that the template can show.
    key: String,
}

impl Messages {
    /// Reads addresses and templates.
    pub(crate) fn open(args: &MessageArgs) -> Result<Self> {
        let template = |name: &str, built_in: &str| Template::open(args.templates.as_deref(), name, built_in);
        let slack = secret("LEASEHOLD_SLACK_URL", args.slack_url_file.as_deref())?;
        let key = secret("LEASEHOLD_PAGERDUTY_KEY", args.pagerduty_key_file.as_deref())?;
        let target = |what: &str, url: &str| {
            Target::parse(what, url).map_err(|error| anyhow::Error::from(WrongUsage(error.to_string())))
        };
        let pagerduty = match key {
            Some(_) => Some(target("--pagerduty-url", &args.pagerduty_url)?),
            None => None,
        };
        Ok(Self(vec![
            Receiver {
                name: "slack",
                template: template("slack.json", SLACK_TEMPLATE)?,
                target: slack.map(|url| target("LEASEHOLD_SLACK_URL", &url)).transpose()?,
                key: String::new(),
            },
            Receiver {
                name: "pagerduty",
                template: template("pagerduty.json", PAGERDUTY_TEMPLATE)?,
                target: pagerduty,
                key: key.unwrap_or_default(),
            },
        ]))
    }

    /// The built-in templates, and nobody to send them to.
    pub(crate) fn to_nobody() -> Result<Self> {
        let receiver = |name, template| -> Result<Receiver> {
            Ok(Receiver {
                name,
                template: Template::parse(name, template)?,
                target: None,
                key: String::new(),
            })
        };
        Ok(Self(vec![receiver("slack", SLACK_TEMPLATE)?, receiver("pagerduty", PAGERDUTY_TEMPLATE)?]))
    }

    /// What each receiver would be sent.
    pub(crate) fn rendered(&self, incident: &Incident) -> Vec<(&'static str, Value)> {
        self.0.iter().map(|receiver| (receiver.name, receiver.message(incident))).collect()
    }

    /// Sends a message to each receiver, and says what came of it.
    pub(crate) async fn send(&self, incident: &Incident) -> Vec<(&'static str, String)> {
        let mut told = Vec::new();
        for receiver in &self.0 {
            let came_of_it = match &receiver.target {
                None => "not configured".to_owned(),
                Some(target) => match post(target, &receiver.message(incident)).await {
                    Ok(()) => "sent".to_owned(),
                    Err(error) => format!("failed: {error}"),
                },
            };
            told.push((receiver.name, came_of_it));
        }
        told
    }
}

impl Receiver {
    fn message(&self, incident: &Incident) -> Value {
        let mut values = incident.values();
        values.insert("routing_key", self.key.clone());
        self.template.fill(&values)
    }
}

async fn post(target: &Target, message: &Value) -> Result<(), PostError> {
    let mut retries = Retries::new(RetryPolicy::CALL, jitter());
    loop {
        let error = match target.post(Default::default(), message.to_string().into_bytes()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match retries.failed().filter(|_| matches!(error, PostError::Temporary(_))) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(error),
        }
    }
}

/// A secret from the environment, or from a file, without the line's end that editors add.
fn secret(variable: &str, file: Option<&Path>) -> Result<Option<String>> {
    let from_file = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read the secret in {}", path.display()))
    };
    let found = match crate::connection::variable(variable) {
        Some(secret) => Some(secret),
        None => file.map(from_file).transpose()?,
    };
    Ok(found.map(|secret| secret.trim().to_owned()).filter(|secret| !secret.is_empty()))
}

/// JSON whose strings have `{{name}}` in them.
struct Template(Value);

/// The names that a template can use.
const NAMES: [&str; 13] = [
    "incident",
    "at",
    "phase",
    "to",
    "sessions",
    "read_only",
    "rate",
    "threshold",
    "window",
    "command",
    "result",
    "summary",
    "routing_key",
];

impl Template {
    fn open(folder: Option<&Path>, name: &str, built_in: &str) -> Result<Self> {
        let path = folder.map(|folder| folder.join(name)).filter(|path| path.exists());
        match path {
            Some(path) => {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("the template {} cannot be read", path.display()))?;
                Self::parse(&path.display().to_string(), &text)
            }
            None => Self::parse(name, built_in),
        }
    }

    /// Reads a template; refuses what is no JSON, and names that do not exist.
    fn parse(what: &str, text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).with_context(|| format!("the template {what} is no JSON"))?;
        let mut wrong = Vec::new();
        each_text(&value, &mut |text: &str| {
            wrong.extend(names_in(text).filter(|name| !NAMES.contains(name)).map(str::to_owned));
        });
        if let Some(name) = wrong.first() {
            bail!(
                "the template {what} has {{{{{name}}}}}, which does not exist; there are {}",
                NAMES.join(", ")
            );
        }
        Ok(Self(value))
    }

    fn fill(&self, values: &BTreeMap<&'static str, String>) -> Value {
        filled(&self.0, values)
    }
}

fn filled(value: &Value, values: &BTreeMap<&'static str, String>) -> Value {
    match value {
        Value::String(text) => Value::String(fill_text(text, values)),
        Value::Array(items) => items.iter().map(|item| filled(item, values)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), filled(field, values))).collect()
        }
        other => other.clone(),
    }
}

/// Fills in from left to right. What was filled in is not looked at again.
fn fill_text(text: &str, values: &BTreeMap<&'static str, String>) -> String {
    let mut parts = text.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("}}") {
            Some((name, rest)) => {
                filled.push_str(values.get(name.trim()).map_or("", String::as_str));
                filled.push_str(rest);
            }
            None => filled.extend(["{{", part]),
        }
    }
    filled
}

fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{").skip(1).filter_map(|part| part.split_once("}}")).map(|(name, _)| name.trim())
}

fn each_text(value: &Value, look: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, look)),
        Value::Object(fields) => fields.values().for_each(|field| each_text(field, look)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_in_and_stays_json_whatever_the_values_are() {
        let template = Template::parse("test", r#"{"a": ["{{ phase }} → {{to}}", 7], "b": "{{x"}"#).unwrap();
        let values = BTreeMap::from([("phase", "a\"b\\{{to}}".to_owned()), ("to", "off".to_owned())]);
        let expected = serde_json::json!({ "a": ["a\"b\\{{to}} → off", 7], "b": "{{x" });
        assert_eq!(template.fill(&values), expected);
    }

    #[test]
    fn a_template_that_cannot_work_is_refused_when_it_is_read() {
        let error = Template::parse("mine.json", r#"{"a": "{{phaze}}"}"#).err().unwrap().to_string();
        assert!(error.contains("{{phaze}}") && error.contains("phase"), "{error}");
        assert!(Template::parse("mine.json", "text").is_err());
    }

    #[test]
    fn the_built_in_templates_use_what_there_is() {
        for text in [SLACK_TEMPLATE, PAGERDUTY_TEMPLATE] {
            let template = Template::parse("built in", text).unwrap();
            let values = NAMES.iter().map(|name| (*name, format!("<{name}>"))).collect();
            let filled = template.fill(&values).to_string();
            assert!(filled.contains("<summary>") && filled.contains("<command>"), "{filled}");
        }
    }
}
