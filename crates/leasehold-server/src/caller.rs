//! Who is calling, and what they may do. Whose lease a request is about is decided in the store, by the claim that
//! `session.rs` makes of it.

use std::time::Duration;

use leasehold_core::{Invalid, JobId, LeaseName, Meta, Owner, RoomId, WorkerName};

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The subject of the token: the owner of the caller's leases.
    pub subject: Owner,
    /// The name to show.
    pub name: ShownName,
    /// The grants at each door.
    pub grants: Grants,
    /// When the token ends, in seconds since 1970.
    pub expires_at: Option<u64>,
}

/// A level of access to a document, a job or a lease. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// See who holds it.
    Read,
    /// Hold it: lock the document, make the job and work on it, acquire the lease.
    Lock,
    /// Take it from others, or have it done again.
    Force,
}

impl Level {
    /// Parses the word for it in a token.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "read" => Some(Self::Read),
            "lock" => Some(Self::Lock),
            "force" => Some(Self::Force),
            _ => None,
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Lock => "lock",
            Self::Force => "force",
        }
    }
}

/// The grants of a caller: for documents, for jobs, and for leases of programs.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    documents: Patterns,
    jobs: Patterns,
    leases: Patterns,
}

impl Grants {
    /// Everything, with every document, job and lease.
    pub fn everything() -> Self {
        let mut grants = Self::default();
        grants.add("*", Level::Force);
        grants.add_job("*", Level::Force);
        grants.add_lease("*", Level::Force);
        grants
    }

    /// Adds a grant for the document `pattern`, or for all that begin with it if it ends in `*`.
    pub fn add(&mut self, pattern: &str, level: Level) {
        self.documents.add(pattern, level);
    }

    /// The same for jobs, whose names are `collection/id`.
    pub fn add_job(&mut self, pattern: &str, level: Level) {
        self.jobs.add(pattern, level);
    }

    /// The same for leases of programs.
    pub fn add_lease(&mut self, pattern: &str, level: Level) {
        self.leases.add(pattern, level);
    }

    /// All grants for documents, as patterns.
    pub fn patterns(&self) -> impl Iterator<Item = (String, Level)> {
        self.documents.all()
    }

    /// The highest level for a document; `None` when the caller must not learn that it exists.
    pub fn level(&self, room: &RoomId) -> Option<Level> {
        self.documents.level(room.as_str())
    }

    /// The same for a job.
    pub fn job_level(&self, job: &JobId) -> Option<Level> {
        self.jobs.level(job.as_str())
    }

    /// The same for the lease of a program.
    pub fn lease_level(&self, name: &LeaseName) -> Option<Level> {
        self.leases.level(name.as_str())
    }

    /// The documents that the caller may see, as exact names and as prefixes of which none contains another.
    pub fn visible(&self) -> (Vec<&str>, Vec<&str>) {
        self.documents.visible()
    }
}

/// Levels for single names, and for prefixes.
#[derive(Clone, Debug, Default)]
struct Patterns {
    exact: std::collections::BTreeMap<String, Level>,
    prefixes: std::collections::BTreeMap<String, Level>,
}

impl Patterns {
    fn add(&mut self, pattern: &str, level: Level) {
        let (map, name) = match pattern.strip_suffix('*') {
            Some(prefix) => (&mut self.prefixes, prefix),
            None => (&mut self.exact, pattern),
        };
        let known = map.entry(name.to_owned()).or_insert(level);
        *known = level.max(*known);
    }

    fn all(&self) -> impl Iterator<Item = (String, Level)> {
        let prefixes = self.prefixes.iter().map(|(prefix, level)| (format!("{prefix}*"), *level));
        prefixes.chain(self.exact.iter().map(|(name, level)| (name.clone(), *level)))
    }

    fn level(&self, name: &str) -> Option<Level> {
        let exact = self.exact.get(name).copied();
        let matching = self.prefixes.iter().filter(|(prefix, _)| name.starts_with(prefix.as_str()));
        exact.max(matching.map(|(_, level)| *level).max())
    }

    fn visible(&self) -> (Vec<&str>, Vec<&str>) {
        let covered = |name: &str, by: &String| by.as_str() != name && name.starts_with(by.as_str());
        let prefixes: Vec<&str> = self
            .prefixes
            .keys()
            .map(String::as_str)
            .filter(|prefix| !self.prefixes.keys().any(|other| covered(prefix, other)))
            .collect();
        let outside = |name: &&str| !prefixes.iter().any(|prefix| name.starts_with(prefix));
        (self.exact.keys().map(String::as_str).filter(outside).collect(), prefixes)
    }
}

/// The entry of `meta` with the holder's display name.
const NAME: &str = "name";

/// The display name of a caller, in the form in which its leases carry it: all of them share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownName(Meta);

impl ShownName {
    /// Takes a name that can be shown.
    pub fn parse(name: &str) -> Result<Self, Invalid> {
        Meta::new([(NAME.to_owned(), name.to_owned())]).map(Self)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.get(NAME).unwrap_or_default()
    }
}

impl Caller {
    /// How long the token still lasts when the wall clock shows this; `None` if it lasts for ever.
    pub(crate) fn left(&self, wall_millis: u64) -> Option<Duration> {
        let end = self.expires_at?.saturating_mul(1_000);
        Some(Duration::from_millis(end.saturating_sub(wall_millis)))
    }

    /// The `meta` of a new lease of the caller.
    pub fn meta(&self) -> Meta {
        self.name.0.clone()
    }

    /// The `meta` of a new attempt of the caller at a job, or of a lease of one of its programs.
    pub fn worker_meta(&self, worker: Option<&WorkerName>) -> Result<Meta, Invalid> {
        worker.map_or_else(|| Ok(self.meta()), |worker| ShownName::parse(worker.as_str()).map(|name| name.0))
    }
}

/// The display name of a holder.
pub fn shown_name<'a>(owner: &'a Owner, meta: &'a Meta) -> &'a str {
    meta.get(NAME).unwrap_or(owner.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> RoomId {
        RoomId::parse(name).unwrap()
    }

    /// A busy server made and kept the name anew for each of the 100,000 last grants.
    #[test]
    fn all_leases_of_a_caller_share_its_name() {
        let (subject, name) = (Owner::parse("user-a").unwrap(), ShownName::parse("Anna").unwrap());
        let caller = Caller { subject, name, grants: Grants::default(), expires_at: None };
        let [first, second] = [caller.meta(), caller.worker_meta(None).unwrap()];
        let names = [&first, &second].map(|meta| shown_name(&caller.subject, meta));
        assert_eq!(names, ["Anna"; 2]);
        assert!(std::ptr::eq(names[0], names[1]));
        let worker = caller.worker_meta(Some(&WorkerName::parse("host-1").unwrap())).unwrap();
        assert_eq!(shown_name(&caller.subject, &worker), "host-1");
    }

    #[test]
    fn the_highest_grant_counts() {
        let mut grants = Grants::default();
        grants.add("team-a.*", Level::Read);
        grants.add("team-a.minutes", Level::Force);
        grants.add("team-a.plans.*", Level::Lock);
        let cases = [
            ("team-a.x", Some(Level::Read)),
            ("team-a.minutes", Some(Level::Force)),
            ("team-a.minutes2", Some(Level::Read)),
            ("team-a.plans.1", Some(Level::Lock)),
            ("team-b", None),
        ];
        for (name, level) in cases {
            assert_eq!(grants.level(&room(name)), level, "{name}");
        }
        assert_eq!(grants.visible(), (vec![], vec!["team-a."]));
    }

    #[test]
    fn a_grant_at_one_door_is_none_at_another() {
        let mut grants = Grants::default();
        grants.add("*", Level::Force);
        grants.add_job("analyses/*", Level::Read);
        grants.add_job("analyses/42", Level::Lock);
        let level = |job: &str| grants.job_level(&JobId::parse(job).unwrap());
        assert_eq!(level("analyses/1"), Some(Level::Read));
        assert_eq!(level("analyses/42"), Some(Level::Lock));
        assert_eq!(level("analyses2/1"), None);
        let lease = |name: &str| grants.lease_level(&LeaseName::parse(name).unwrap());
        assert_eq!(lease("analyses/42"), None);
    }

    #[test]
    fn without_grants_nothing_is_there() {
        let job = JobId::parse("a/1").unwrap();
        assert_eq!(Grants::default().level(&room("x")), None);
        assert_eq!(Grants::default().job_level(&job), None);
        assert_eq!(Grants::everything().level(&room("x")), Some(Level::Force));
        assert_eq!(Grants::everything().job_level(&job), Some(Level::Force));
        let name = LeaseName::parse("nightly").unwrap();
        assert_eq!(Grants::default().lease_level(&name), None);
        assert_eq!(Grants::everything().lease_level(&name), Some(Level::Force));
    }
}
