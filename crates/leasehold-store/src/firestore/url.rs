//! Where the documents are, and what their fields are called: `firestore:PROJECT/DATABASE?…`, understood.

use leasehold_core::{Invalid, Key};
use percent_encoding::percent_decode_str;

use crate::Result;

const FORM: &str =
    "write firestore:PROJECT or firestore:PROJECT/DATABASE, with options such as ?collection=analyses";

/// The database that every project has.
const DEFAULT_DATABASE: &str = "(default)";

/// Where the documents are, unless a key names another collection.
const DEFAULT_COLLECTION: &str = "analyses";

/// The longest id of a document, in bytes, and the longest path of one: Firestore's limits.
const LONGEST_ID: usize = 1_500;

/// The door whose keys name a document by its own path.
const JOBS: &str = "job";

/// Where a Firestore database is, and how its documents are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirestoreUrl {
    pub(super) project: String,
    pub(super) database: String,
    pub(super) emulator: Option<String>,
    pub(super) collection: String,
    pub(super) names: Box<Names>,
}

/// What our fields are called, and the words for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) status: String,
    pub(super) owner: String,
    pub(super) expires_at: String,
    pub(super) heartbeat_at: String,
    pub(super) fence: String,
    pub(super) attempt: String,
    pub(super) state: String,
    pub(super) payload: String,
    pub(super) result: String,
    pub(super) error: String,
    pub(super) attempts: String,
    pub(super) max_attempts: String,
    pub(super) queued: String,
    pub(super) ready: String,
    pub(super) failed: String,
    /// Further words that mean that nothing is left to be done.
    pub(super) finished: Vec<String>,
}

impl Default for Names {
    fn default() -> Self {
        let name = str::to_owned;
        Self {
            status: name("status"),
            owner: name("lockOwner"),
            expires_at: name("lockExpiresAt"),
            heartbeat_at: name("lockHeartbeatAt"),
            fence: name("lockFence"),
            attempt: name("lockAttempt"),
            state: name("lockState"),
            payload: name("payload"),
            result: name("result"),
            error: name("error"),
            attempts: name("attempts"),
            max_attempts: name("maxAttempts"),
            queued: name("QUEUED"),
            ready: name("READY"),
            failed: name("FAILED"),
            finished: Vec::new(),
        }
    }
}

impl Names {
    /// The fields by their default names.
    fn field(&mut self, default: &str) -> Option<&mut String> {
        Some(match default {
            "status" => &mut self.status,
            "lockOwner" => &mut self.owner,
            "lockExpiresAt" => &mut self.expires_at,
            "lockHeartbeatAt" => &mut self.heartbeat_at,
            "lockFence" => &mut self.fence,
            "lockAttempt" => &mut self.attempt,
            "lockState" => &mut self.state,
            "payload" => &mut self.payload,
            "result" => &mut self.result,
            "error" => &mut self.error,
            "attempts" => &mut self.attempts,
            "maxAttempts" => &mut self.max_attempts,
            _ => return None,
        })
    }

    /// All fields that are ours.
    pub(super) fn fields(&self) -> Vec<String> {
        let fields = [
            &self.status,
            &self.owner,
            &self.expires_at,
            &self.heartbeat_at,
            &self.fence,
            &self.attempt,
            &self.state,
            &self.payload,
            &self.result,
            &self.error,
            &self.attempts,
            &self.max_attempts,
        ];
        fields.into_iter().cloned().collect()
    }

    fn check(&self) -> Result<(), Invalid> {
        let mut fields = self.fields();
        fields.sort_unstable();
        if let Some([twice, _]) = fields.array_windows::<2>().find(|[one, other]| one == other) {
            return Err(refuse(twice, "two fields have the same name", "give each a name of its own"));
        }
        let words = [&self.queued, &self.ready, &self.failed];
        let is_twice = self.queued == self.ready || self.ready == self.failed || self.queued == self.failed;
        if is_twice || self.finished.contains(&self.queued) || words.iter().any(|word| word.is_empty()) {
            let rule = "queued, ready and failed are three different words, and finished has other ones";
            return Err(refuse(&self.queued, rule, "choose a word for each"));
        }
        Ok(())
    }
}

impl FirestoreUrl {
    /// The default database of a project, with every field under its own name.
    pub fn new(project: &str) -> Result<Self> {
        Self::parse(&format!("firestore:{project}"))
    }

    /// Reads `firestore:PROJECT`, `firestore:PROJECT/DATABASE` and what may follow it, or says what is wrong.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("firestore:").unwrap_or_default();
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (project, database) = place.split_once('/').unwrap_or((place, DEFAULT_DATABASE));
        if !is_id(project) {
            return Err(refuse(url, "it names no project", FORM).into());
        }
        if database != DEFAULT_DATABASE && !is_id(database) {
            return Err(refuse(url, "after the slash comes the id of a database", FORM).into());
        }
        let mut parsed = Self {
            project: project.into(),
            database: database.into(),
            emulator: None,
            collection: DEFAULT_COLLECTION.into(),
            names: Box::default(),
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            parsed.set(name, &percent_decode_str(value).decode_utf8_lossy())?;
        }
        parsed.names.check()?;
        Ok(parsed)
    }

    /// The same with an option, as it may stand in the URL: see `docs/firestore.md`.
    pub fn with(mut self, option: &str, value: &str) -> Result<Self> {
        self.set(option, value)?;
        self.names.check()?;
        Ok(self)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), Invalid> {
        match option {
            "collection" if value.split('/').count() % 2 == 1 && value.split('/').all(is_plain_id) => {
                self.collection = value.to_owned();
            }
            "collection" => {
                let rule = "a collection is a name, or PARENT/DOCUMENT/NAME";
                return Err(refuse(value, rule, "write it like analyses or tenants/7/analyses"));
            }
            "emulator" if !value.is_empty() => self.emulator = Some(value.to_owned()),
            "queued" => self.names.queued = value.to_owned(),
            "ready" => self.names.ready = value.to_owned(),
            "failed" => self.names.failed = value.to_owned(),
            "finished" => self.names.finished = value.split(',').map(str::to_owned).collect(),
            field => match self.names.field(field) {
                Some(name) if is_field(value) => *name = value.to_owned(),
                Some(_) => {
                    let rule =
                        "the name of a field begins with a letter or _, and goes on with those and digits";
                    return Err(refuse(value, rule, "name a field of the document itself"));
                }
                None => {
                    let fix = "see docs/firestore.md for what there is";
                    return Err(refuse(option, "there is no such option", fix));
                }
            },
        }
        Ok(())
    }

    /// Where the database is, in Firestore's words.
    pub(super) fn database_path(&self) -> String {
        format!("projects/{}/databases/{}", self.project, self.database)
    }

    /// The document of a key: `job/analyses/42` is `analyses/42`, `job/42` is in the collection of the options, and a
    /// key of another door is in the collection of that name.
    pub(super) fn document(&self, key: &Key) -> Result<String, Invalid> {
        let name = key.name();
        let path = match key.door() {
            JOBS if !name.split('/').all(is_plain_id) => {
                let rule = "in Firestore, no part of a job's path is empty, `.`, `..`, `__…__` or longer than 1,500 bytes";
                return Err(Invalid::new("key", key.as_str(), rule, "choose another id for the document"));
            }
            JOBS if name.split('/').count().is_multiple_of(2) => name.to_owned(),
            JOBS => format!("{}/{name}", self.collection),
            door => format!("{door}/{}", escaped(name)),
        };
        Ok(format!("{}/documents/{path}", self.database_path()))
    }
}

/// A name as one id of a document: what would lead elsewhere, or is Firestore's own, is written as %XX.
fn escaped(name: &str) -> String {
    let escaped = name.replace('%', "%25").replace('/', "%2F");
    if is_plain_id(&escaped) {
        return escaped;
    }
    let rest: String = escaped.chars().skip(1).collect();
    match escaped.chars().next() {
        Some('.') => format!("%2E{rest}"),
        Some('_') => format!("%5F{rest}"),
        _ => escaped,
    }
}

fn is_plain_id(id: &str) -> bool {
    let is_reserved = id.len() >= 4 && id.starts_with("__") && id.ends_with("__");
    !id.is_empty() && id.len() <= LONGEST_ID && id != "." && id != ".." && !is_reserved
}

/// What Google allows in the ids of projects and databases, and nothing that could lead elsewhere.
fn is_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    id.starts_with(|c: char| c.is_ascii_alphanumeric()) && id.len() <= 100 && id.chars().all(allowed)
}

fn is_field(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_reserved = name.starts_with("__") && name.ends_with("__");
    let rest_fits = name.chars().all(|c| is_start(c) || c.is_ascii_digit());
    name.starts_with(is_start) && rest_fits && !is_reserved && name.len() <= LONGEST_ID
}

fn refuse(value: &str, rule: &str, fix: &str) -> Invalid {
    Invalid::new("Firestore URL", value, rule, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(url: &str, key: &str) -> String {
        let path = FirestoreUrl::parse(url).unwrap().document(&Key::parse(key).unwrap()).unwrap();
        path.strip_prefix("projects/p/databases/(default)/documents/").unwrap_or(&path).to_owned()
    }

    #[test]
    fn a_key_is_a_document() {
        let cases = [
            ("firestore:p", "job/analyses/42", "analyses/42"),
            ("firestore:p", "job/tenants/7/analyses/42", "tenants/7/analyses/42"),
            ("firestore:p", "job/42", "analyses/42"),
            ("firestore:p?collection=reports", "job/42", "reports/42"),
            ("firestore:p?collection=tenants/7/reports", "job/42", "tenants/7/reports/42"),
            ("firestore:p", "run/nightly", "run/nightly"),
            ("firestore:p", "run/a/b%c", "run/a%2Fb%25c"),
            ("firestore:p", "run/..", "run/%2E."),
            ("firestore:p", "run/__x__", "run/%5F_x__"),
            ("firestore:p/other", "job/a/b", "projects/p/databases/other/documents/a/b"),
        ];
        for (url, key, expected) in cases {
            assert_eq!(document(url, key), expected, "{key}");
        }
    }

    #[test]
    fn a_job_cannot_lead_elsewhere() {
        let url = FirestoreUrl::new("p").unwrap();
        for key in ["job/a/..", "job/a//b/c", "job/a/", "job/__a__/b", "job/./b"] {
            let error = url.document(&Key::parse(key).unwrap()).unwrap_err().to_string();
            assert!(error.contains("choose another id"), "{key}: {error}");
        }
    }

    #[test]
    fn names_and_words_may_be_others() {
        let url = FirestoreUrl::parse(
            "firestore:p?lockOwner=worker&status=state&ready=DONE&finished=CANCELLED,SKIPPED&emulator=h:1",
        );
        let names = url.clone().unwrap().names;
        assert_eq!(
            (names.owner.as_str(), names.status.as_str(), names.ready.as_str()),
            ("worker", "state", "DONE")
        );
        assert_eq!(names.finished, ["CANCELLED", "SKIPPED"]);
        assert_eq!(url.clone().unwrap().emulator.as_deref(), Some("h:1"));
        let by_hand = FirestoreUrl::new("p").unwrap().with("lockOwner", "worker").unwrap();
        assert_eq!(by_hand.names.owner, "worker");
    }

    #[test]
    fn a_bad_url_says_what_to_write() {
        let cases = [
            ("firestore:", "names no project"),
            ("firestore:a b", "names no project"),
            ("firestore:../p", "names no project"),
            ("firestore:p/", "id of a database"),
            ("firestore:p/a/b", "id of a database"),
            ("firestore:p?color=red", "no such option"),
            ("firestore:p?lockOwner=a.b", "the name of a field"),
            ("firestore:p?lockOwner=", "the name of a field"),
            ("firestore:p?lockOwner=status", "the same name"),
            ("firestore:p?ready=FAILED", "three different words"),
            ("firestore:p?finished=QUEUED", "three different words"),
            ("firestore:p?collection=a/b", "a collection is"),
            ("firestore:p?emulator=", "no such option"),
        ];
        for (url, expected) in cases {
            let error = FirestoreUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
