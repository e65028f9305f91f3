//! What a caller may choose, and both profiles with their defaults, in one place. What is refused here is refused with
//! what to write instead; nothing further in checks it again.

use std::time::Duration;

use leasehold_core::backoff::Backoff;
pub use leasehold_core::backoff::RetryPolicy;
use leasehold_core::lease::OnSilence;
use leasehold_core::name::Invalid;
use leasehold_core::time::{Ttl, whole_millis};

use super::effect::ReleaseReason;
use super::record::{HOLDER_MARGIN, SKEW};

/// The shortest lease: its holder stops four seconds before the end, and others may come two seconds after that.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(6);

/// How long a caller waits when it must be told by a duration: within a day, like a lease.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// Which of the two source designs sets the defaults and the error codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Leases of 25 and 30 s, three attempts. The default.
    #[default]
    Autosave,
    /// Leases of 15 s, as many attempts as fit into five seconds.
    Service,
}

impl Profile {
    /// Both, with their names.
    pub const WORDS: [(Self, &'static str); 2] = [(Self::Autosave, "autosave"), (Self::Service, "service")];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }

    /// The lease that the holder of the Web Lock is shown.
    pub const fn web_ttl(self) -> Duration {
        match self {
            Self::Autosave => Duration::from_secs(25),
            Self::Service => Duration::from_secs(15),
        }
    }

    /// The lease in `.lock`, and of who has no Web Lock.
    pub const fn file_ttl(self) -> Duration {
        match self {
            Self::Autosave => Duration::from_secs(30),
            Self::Service => Duration::from_secs(15),
        }
    }

    /// How attempts to acquire follow each other.
    pub const fn retry(self) -> RetryPolicy {
        match self {
            Self::Autosave => exactly(500, 5_000, Some(3)),
            Self::Service => exactly(200, 5_000, None),
        }
    }

    /// How long an acquire may take altogether.
    pub const fn max_wait(self) -> Option<Duration> {
        match self {
            Self::Autosave => None,
            Self::Service => Some(Duration::from_secs(5)),
        }
    }
}

/// Waits of exactly so many milliseconds, doubling: the sources give them, so there is no jitter.
const fn exactly(initial: u64, max: u64, max_attempts: Option<u32>) -> RetryPolicy {
    RetryPolicy { backoff: Backoff::doubling(initial, max), max_attempts }
}

/// How a heartbeat is tried again: twice, after 0.5 and 1 s.
pub const RENEW_RETRY: RetryPolicy = exactly(500, 1_000, Some(3));

/// How a release is tried again: three times, after 0.5, 1 and 2 s.
pub const RELEASE_RETRY: RetryPolicy = exactly(500, 2_000, Some(4));

/// How a release without a caller is tried again: until it is done.
pub const CLEAN_UP_RETRY: RetryPolicy = exactly(500, 30_000, None);

/// What a lease is first sought with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The Web Lock first, and `.lock` with it.
    #[default]
    WebLock,
    /// `.lock` alone.
    FileLock,
}

impl Strategy {
    /// Both, with their names.
    pub const WORDS: [(Self, &'static str); 2] = [(Self::WebLock, "web-lock"), (Self::FileLock, "file-lock")];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }

    /// The `source` of a lease: *Project lock service* 1 calls a file lease `opfs-lock`.
    pub const fn source(self) -> &'static str {
        match self {
            Self::WebLock => "web-lock",
            Self::FileLock => "opfs-lock",
        }
    }
}

/// What a caller wrote; absent means the profile's default. [`Options::parse`] makes [`Options`] of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Which defaults and error codes.
    pub profile: Option<String>,
    /// How long an acquire may take altogether.
    pub max_wait_ms: Option<f64>,
    /// How long to wait for the Web Lock in each attempt.
    pub web_lock_timeout_ms: Option<f64>,
    /// The wait after the first failed attempt.
    pub initial_delay_ms: Option<f64>,
    /// The longest wait.
    pub max_delay_ms: Option<f64>,
    /// What each wait is multiplied by.
    pub multiplier: Option<f64>,
    /// How many attempts; infinity for as many as it takes.
    pub max_attempts: Option<f64>,
    /// How long the lease lasts.
    pub ttl_ms: Option<f64>,
    /// How often it is renewed.
    pub heartbeat_interval_ms: Option<f64>,
    /// What to try first.
    pub preferred_strategy: Option<String>,
    /// Whether a second acquire in the tab that holds is given the same lease.
    pub reentrant: bool,
    /// Whether a tab that lost the lock, or did not get it, takes it when it becomes free; unsaid, only a page does that
    /// lost it because it was frozen.
    pub auto_resume: Option<bool>,
    /// Whether a folder without a guard will do: the lease is then advice only.
    pub allow_advisory: bool,
    /// Whether a take-over goes on where clocks disagree, so that nobody knows whether the holder lives.
    pub accept_clock_skew: bool,
    /// What the tab calls itself, for people at other tabs. It is the machine's, not the acquire's:
    /// [`Meta::label`](leasehold_core::name::Meta::label) reads it, [`set_label`](crate::ProjectLock::set_label) takes it.
    pub label: Option<String>,
}

/// How one acquire goes about it, and how its lease is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Which defaults and error codes.
    pub profile: Profile,
    /// How long it may take altogether.
    pub max_wait: Option<Duration>,
    /// How long to wait for the Web Lock in each attempt.
    pub web_lock_timeout: Duration,
    /// How attempts follow each other.
    pub retry: RetryPolicy,
    /// The lease that the holder of the Web Lock is shown.
    pub web_ttl: Ttl,
    /// The lease in `.lock`.
    pub file_ttl: Ttl,
    /// How often it is renewed, if the caller chose.
    pub heartbeat: Option<Duration>,
    /// What to try first.
    pub strategy: Strategy,
    /// Whether a second acquire in the tab that holds is given the same lease.
    pub reentrant: bool,
    /// Whether the lock is taken when it becomes free; unsaid, only after it was lost because the page was frozen.
    pub auto_resume: Option<bool>,
    /// Whether a folder without a guard will do.
    pub allow_advisory: bool,
    /// Whether a take-over goes on where clocks disagree.
    pub accept_clock_skew: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self::of(Profile::default())
    }
}

impl Options {
    /// The defaults of a profile.
    pub fn of(profile: Profile) -> Self {
        Self {
            profile,
            max_wait: profile.max_wait(),
            web_lock_timeout: Duration::from_secs(1),
            retry: profile.retry(),
            web_ttl: ttl(profile.web_ttl()),
            file_ttl: ttl(profile.file_ttl()),
            heartbeat: None,
            strategy: Strategy::WebLock,
            reentrant: false,
            auto_resume: None,
            allow_advisory: false,
            accept_clock_skew: false,
        }
    }

    /// Reads what a caller wrote, or says what is wrong with it and what to write.
    pub fn parse(wanted: &Wanted) -> Result<Self, Invalid> {
        let profile = named("profile", wanted.profile.as_deref(), &Profile::WORDS)?.unwrap_or_default();
        let defaults = Self::of(profile);
        let lease = lease_time("ttlMs", wanted.ttl_ms)?;
        let strategy = named("preferredStrategy", wanted.preferred_strategy.as_deref(), &Strategy::WORDS)?;
        Ok(Self {
            max_wait: wait("maxWaitMs", wanted.max_wait_ms)?.or(defaults.max_wait),
            web_lock_timeout: wait("webLockTimeoutMs", wanted.web_lock_timeout_ms)?
                .unwrap_or(defaults.web_lock_timeout),
            retry: retry(wanted, defaults.retry)?,
            web_ttl: lease.unwrap_or(defaults.web_ttl),
            file_ttl: lease.unwrap_or(defaults.file_ttl),
            heartbeat: heartbeat(wanted.heartbeat_interval_ms, lease.unwrap_or(defaults.file_ttl))?,
            strategy: strategy.unwrap_or(defaults.strategy),
            reentrant: wanted.reentrant,
            auto_resume: wanted.auto_resume,
            allow_advisory: wanted.allow_advisory,
            accept_clock_skew: wanted.accept_clock_skew,
            profile,
        })
    }

    /// The lease that the holder is shown.
    pub const fn shown_ttl(&self, strategy: Strategy) -> Ttl {
        match strategy {
            Strategy::WebLock => self.web_ttl,
            Strategy::FileLock => self.file_ttl,
        }
    }
}

/// How long after its last successful request a holder of such a lease must stop: never later than its lease is shown to
/// last, and [`HOLDER_MARGIN`] before `.lock` says that it ends.
pub fn usable(shown: Ttl, file: Ttl) -> Duration {
    shown.as_duration().min(file.as_duration().saturating_sub(HOLDER_MARGIN))
}

/// The longest that two tries of a heartbeat take, with the wait between them: each gives up the guard after two seconds.
const TWO_TRIES: Duration = Duration::from_millis(4_500);

/// How often such a lease is renewed: five seconds before its end, early enough for two tries before its holder must stop, and without the Web Lock, whose queue would tell that
/// the holder lives, also ten seconds before its holder must stop. A short lease is renewed halfway.
pub fn heartbeat_of(wanted: Option<Duration>, strategy: Strategy, shown: Ttl, file: Ttl) -> Duration {
    let usable = usable(shown, file);
    let latest = usable.saturating_sub(Duration::from_secs(1)).max(usable / 2);
    let room = usable.saturating_sub(Duration::from_secs(10)).max(usable / 2);
    let default = match strategy {
        Strategy::WebLock => before_the_end(shown).min(usable.saturating_sub(TWO_TRIES).max(usable / 2)),
        Strategy::FileLock => before_the_end(shown).min(room),
    };
    wanted.unwrap_or(default).clamp(Duration::from_millis(1), latest)
}

fn before_the_end(shown: Ttl) -> Duration {
    let early = shown.as_duration().saturating_sub(Duration::from_secs(5));
    early.max(shown.as_duration() / 10)
}

/// A duration of a profile; all of them are valid.
fn ttl(duration: Duration) -> Ttl {
    Ttl::new(duration).unwrap_or(Ttl::MAX)
}

/// A lease time that the caller wrote, under this name.
pub fn lease_time(what: &'static str, millis: Option<f64>) -> Result<Option<Ttl>, Invalid> {
    let Some(duration) = wait(what, millis)? else { return Ok(None) };
    if duration < SHORTEST_LEASE {
        let rule = format!(
            "a lease lasts at least {} ms: its holder stops {} ms before the end, and others may come {} ms before it",
            whole_millis(SHORTEST_LEASE),
            whole_millis(HOLDER_MARGIN),
            whole_millis(SKEW)
        );
        let written = whole_millis(duration).to_string();
        return Err(Invalid::new(what, &written, rule, "write 6000 or more, or leave it out"));
    }
    Ttl::new(duration).map(Some)
}

/// How long a holder has to answer a request to hand the project over, unless the asker says otherwise.
const COUNTDOWN: Duration = Duration::from_secs(10);

/// What a holder's silence means, with its names.
pub const ON_SILENCE: [(OnSilence, &str); 2] = [(OnSilence::Grant, "grant"), (OnSilence::Refuse, "refuse")];

/// What a request to hand the project over asks for, as the caller wrote it. Unsaid, silence is a refusal.
pub fn ask(countdown_ms: Option<f64>, on_silence: Option<&str>) -> Result<(Duration, OnSilence), Invalid> {
    let countdown = wait("countdownMs", countdown_ms)?.unwrap_or(COUNTDOWN);
    let on_silence = named("onSilence", on_silence, &ON_SILENCE)?;
    Ok((countdown, on_silence.unwrap_or(OnSilence::Refuse)))
}

/// Why a lease is given back, as the caller wrote it.
pub fn release_reason(text: Option<&str>) -> Result<ReleaseReason, Invalid> {
    Ok(named("reason", text, &ReleaseReason::WORDS)?.unwrap_or_default())
}

fn heartbeat(millis: Option<f64>, file: Ttl) -> Result<Option<Duration>, Invalid> {
    let Some(every) = wait("heartbeatIntervalMs", millis)? else { return Ok(None) };
    let usable = usable(file, file);
    if every.is_zero() || every >= usable {
        let rule =
            format!("more than 0 and less than {} ms, when the holder must stop", whole_millis(usable));
        let written = whole_millis(every).to_string();
        let fix = format!("write {} or less, or leave it out", whole_millis(usable / 2));
        return Err(Invalid::new("heartbeatIntervalMs", &written, rule, fix));
    }
    Ok(Some(every))
}

fn retry(wanted: &Wanted, defaults: RetryPolicy) -> Result<RetryPolicy, Invalid> {
    let Backoff { initial, multiplier, max } = defaults.backoff;
    let initial = wait("retryPolicy.initialDelayMs", wanted.initial_delay_ms)?.unwrap_or(initial);
    let max = wait("retryPolicy.maxDelayMs", wanted.max_delay_ms)?.unwrap_or(max.max(initial));
    let multiplier = match wanted.multiplier {
        None => multiplier,
        Some(factor) if (1.0..=100.0).contains(&factor) => factor,
        Some(factor) => {
            let rule = "a wait never gets shorter, and at most 100 times as long";
            return Err(refuse("retryPolicy.multiplier", factor, rule, "write 2, or leave it out"));
        }
    };
    let max_attempts = match wanted.max_attempts {
        None => defaults.max_attempts,
        Some(f64::INFINITY) => None,
        Some(most) if (1.0..=1e9).contains(&most) && most.fract() == 0.0 => Some(most as u32),
        Some(most) => {
            let rule = "a whole number of at least 1, or Infinity";
            return Err(refuse("retryPolicy.maxAttempts", most, rule, "write 3, or leave it out"));
        }
    };
    Ok(RetryPolicy { backoff: Backoff { initial, multiplier, max }, max_attempts })
}

/// A duration in milliseconds, as JavaScript writes it.
fn wait(what: &'static str, millis: Option<f64>) -> Result<Option<Duration>, Invalid> {
    let Some(millis) = millis else { return Ok(None) };
    if !(0.0..=LONGEST_WAIT.as_millis() as f64).contains(&millis) {
        let rule = "a number of milliseconds, 0 to 86400000 (a day)";
        return Err(refuse(what, millis, rule, "write 5000 for five seconds, or leave it out"));
    }
    Ok(Some(Duration::from_millis(millis as u64)))
}

fn named<T: Copy>(what: &'static str, text: Option<&str>, words: &[(T, &str)]) -> Result<Option<T>, Invalid> {
    let Some(text) = text else { return Ok(None) };
    if let Some((value, _)) = words.iter().find(|(_, word)| *word == text) {
        return Ok(Some(*value));
    }
    let mut fix = String::from("write one of");
    for (at, (_, word)) in words.iter().enumerate() {
        fix.push_str(if at == 0 { ": " } else { ", " });
        fix.push_str(word);
    }
    Err(Invalid::new(what, text, "it is not known here", fix))
}

fn refuse(what: &'static str, value: f64, rule: &str, fix: &str) -> Invalid {
    Invalid::new(what, &shown(value), rule, fix)
}

/// The number for people, to the thousandth. What the standard library has for this is too large for a page that has to
/// load it.
fn shown(value: f64) -> String {
    let thousandths = value.abs() * 1_000.0;
    if value.is_nan() || thousandths > 9e18 {
        return if value.is_nan() { "NaN" } else { "a number beyond measure" }.into();
    }
    let thousandths = thousandths as u64;
    let sign = if value < 0.0 { "-" } else { "" };
    match thousandths % 1_000 {
        0 => format!("{sign}{}", thousandths / 1_000),
        rest => format!("{sign}{}.{rest:03}", thousandths / 1_000),
    }
}
