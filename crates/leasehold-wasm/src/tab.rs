//! One tab's machine. Every request brings the time; every answer says what to do and when to come back.
//!
//! A request is a flat list: the wall clock, the monotonic one, a word, and what belongs to it, in the order in which
//! [`Open::handle`] takes it. (A type for each would be clearer, and would triple what a browser loads.) A request that makes
//! no sense changes nothing, and is answered with what is wrong with it.

use leasehold_core::lease::Claim;
use leasehold_core::name::{Invalid, Reason};
use leasehold_core::time::{StoreTime, whole_millis};
use leasehold_core::{Fence, LeaseId, Owner};
use leasehold_project_rules::event::Event;
use leasehold_project_rules::guarded::{Action, Found, LockFile, Outcome, Probe, Section, Verdict};
use leasehold_project_rules::options::{lease_time, release_reason};
use leasehold_project_rules::root::check_save;
use leasehold_project_rules::wire::{EffectView, ErrorView, StepView};
use leasehold_project_rules::{
    CallId, Clock, Effect, Fault, Folder, IoError, IoKind, News, Now, Operation, Options, Profile,
    ProjectLock, ProjectLockError, Root, Surroundings, Ticket, Wanted, WebLock,
};
use serde::Serialize;

use crate::fields::{Fields, Wrong};

/// A machine, once it was opened, and the guarded section that its host is in.
#[derive(Default)]
pub struct Tab {
    open: Option<Open>,
}

struct Open {
    lock: ProjectLock,
    clock: Clock,
    profile: Profile,
    /// The guarded sections that were asked for and not entered yet.
    wanted: Vec<(Ticket, Action)>,
    /// The one that the host is in.
    section: Option<(For, Section)>,
    /// Those that were decided and not reported yet.
    decided: Vec<(Ticket, Verdict)>,
}

/// What a guarded section is for.
#[derive(Clone, Copy)]
enum For {
    /// Something that the machine wanted.
    Machine(Ticket),
    /// A save, checked with this.
    Save(Claim),
}

impl Tab {
    /// Handles a request, and writes the answer.
    pub fn handle(&mut self, request: &[u8]) -> Vec<u8> {
        let answer = self.answer(&mut Fields::new(request));
        let answer = answer.unwrap_or_else(|why| Answer { invalid: Some(why), ..Answer::default() });
        serde_json::to_vec(&answer).unwrap_or_default()
    }

    fn answer(&mut self, fields: &mut Fields<'_>) -> Result<Answer, Wrong> {
        let (wall, monotonic) = (fields.whole()?, fields.whole()?);
        let word = fields.text()?;
        if word == "open" {
            self.open = Some(Open::new(surroundings(fields)?, Clock::new(wall, monotonic)));
            return Ok(Answer::default());
        }
        let open = self.open.as_mut().ok_or("open it first")?;
        let now = open.clock.tick(wall, monotonic);
        let mut answer = open.handle(word, fields, now)?;
        open.drain(&mut answer, now);
        Ok(answer)
    }
}

impl Open {
    fn new(surroundings: Surroundings, clock: Clock) -> Self {
        Self {
            lock: ProjectLock::new(surroundings),
            clock,
            profile: Profile::default(),
            wanted: Vec::new(),
            section: None,
            decided: Vec::new(),
        }
    }

    fn handle(&mut self, word: &str, fields: &mut Fields<'_>, now: Now) -> Result<Answer, Wrong> {
        match word {
            "acquire" => {
                let call = call(fields)?;
                let options = self.options(fields)?;
                self.lock.acquire(call, &options, now);
            }
            "takeOver" => {
                let call = call(fields)?;
                let options = self.options(fields)?;
                let seen = fields.maybe_whole()?.map(Fence::new).transpose().map_err(said)?;
                let reason = fields.maybe_text()?.unwrap_or("taken over");
                self.lock.take_over(call, &options, seen, Reason::parse(reason).map_err(said)?, now);
            }
            "renew" => {
                let (call, lease_id) = (call(fields)?, id(fields)?);
                let extend_by = lease_time("extendByMs", fields.maybe_number()?).map_err(said)?;
                self.lock.renew(call, lease_id, extend_by, now);
            }
            "release" => {
                let (call, lease_id) = (call(fields)?, id(fields)?);
                let force = fields.flag()?;
                let reason = release_reason(fields.maybe_text()?).map_err(said)?;
                self.lock.release(call, lease_id, reason, force, now);
            }
            "abort" => self.lock.abort(call(fields)?, now),
            "refresh" => self.lock.refresh(now),
            "claim" => {
                let claim = claim(fields)?;
                check_save(fields.text()?).map_err(said)?;
                return self.may_save(&claim, now);
            }
            _ => return self.handle_report(word, fields, now),
        }
        Ok(Answer::default())
    }

    /// What came in from around: no call of the application.
    fn handle_report(&mut self, word: &str, fields: &mut Fields<'_>, now: Now) -> Result<Answer, Wrong> {
        match word {
            "timeout" => self.lock.handle_timeout(now),
            "frozen" => self.lock.handle_frozen(now),
            "resumed" => self.lock.handle_resumed(now),
            "webLock" => {
                let ticket = ticket(fields)?;
                self.lock.handle_web_lock(ticket, web_lock(fields)?, now);
            }
            "ioError" => {
                let ticket = ticket(fields)?;
                let error = io_error(fields)?;
                take(&mut self.wanted, ticket);
                take(&mut self.decided, ticket);
                self.lock.handle_io_error(ticket, &error, now);
            }
            "news" => self.lock.handle_news(&news(fields)?, now),
            "section" => {
                let ticket = ticket(fields)?;
                let action = take(&mut self.wanted, ticket).ok_or("no such section was asked for")?;
                return Ok(self.enter(For::Machine(ticket), section(action, fields)?));
            }
            "saveSection" => {
                let claim = claim(fields)?;
                return self.enter_to_save(claim, fields, now);
            }
            "saveFailed" => {
                let error = io_error(fields)?.told(Operation::Renew, self.profile);
                return Ok(Answer { error: Some((&error).into()), ..Answer::default() });
            }
            "decide" => return self.decide(probe(fields.text()?), now),
            "guarded" => {
                let ticket = ticket(fields)?;
                let verdict = take(&mut self.decided, ticket).ok_or("nothing was decided")?;
                self.lock.handle_guarded(ticket, verdict.outcome, verdict.skewed, now);
            }
            _ => return Err("no such word".into()),
        }
        Ok(Answer::default())
    }

    fn options(&mut self, fields: &mut Fields<'_>) -> Result<Options, Wrong> {
        let options = Options::parse(&wanted(fields)?).map_err(said)?;
        self.profile = options.profile;
        Ok(options)
    }

    /// May the holder of this lease begin to save?
    fn may_save(&mut self, wanted: &Claim, now: Now) -> Result<Answer, Wrong> {
        // Past its deadline it is lost, and everybody hears so now.
        self.lock.handle_timeout(now);
        let may = self.lock.claim(now).as_ref() == Some(wanted);
        Ok(Answer { error: (!may).then(|| self.stale()), ..Answer::default() })
    }

    /// A guarded section was entered: which held file is to be looked at?
    fn enter(&mut self, what: For, section: Section) -> Answer {
        let probe = section.probe().map(Fence::get);
        self.section = Some((what, section));
        Answer { probe, ..Answer::default() }
    }

    fn enter_to_save(&mut self, wanted: Claim, fields: &mut Fields<'_>, now: Now) -> Result<Answer, Wrong> {
        let section = section(Action::Commit(wanted), fields)?;
        Ok(if self.lock.claim(now) == Some(wanted) {
            self.enter(For::Save(wanted), section)
        } else {
            Answer { error: Some(self.stale()), ..Answer::default() }
        })
    }

    /// The held file was looked at: what is to be done?
    fn decide(&mut self, probe: Probe, now: Now) -> Result<Answer, Wrong> {
        let (what, section) = self.section.take().ok_or("no section was entered")?;
        let verdict = section.decide(probe, now.wall);
        let mut answer =
            Answer { steps: verdict.steps.iter().map(StepView::from).collect(), ..Answer::default() };
        match what {
            For::Machine(ticket) => self.decided.push((ticket, verdict)),
            For::Save(_) if verdict.outcome == Outcome::MayCommit => {}
            For::Save(claim) => {
                self.lock.handle_commit(claim, &verdict.outcome, now);
                answer.error = Some(match &verdict.outcome {
                    // Whose it is cannot be told now: nothing is lost yet.
                    Outcome::Unreadable { said } => (&self.refusal(Fault::CannotRead).said(said)).into(),
                    _ => self.stale(),
                });
            }
        }
        Ok(answer)
    }

    /// What a holder is told that may not save, unless the machine knows better.
    fn stale(&self) -> ErrorView {
        ErrorView::from(&self.refusal(Fault::Stale))
    }

    fn refusal(&self, fault: Fault) -> ProjectLockError {
        ProjectLockError::new(fault, Operation::Renew, self.profile)
    }

    fn drain(&mut self, answer: &mut Answer, now: Now) {
        while let Some(effect) = self.lock.poll_effect() {
            if let (Some(error), Effect::Emit(Event::ReadonlyEntered { last_error, .. })) =
                (&mut answer.error, &effect)
            {
                *error = last_error.into();
            }
            answer.effects.push((&effect).into());
            if let Effect::Guarded { ticket, action } = effect {
                self.wanted.push((ticket, action));
            }
        }
        answer.timeout_ms = self.lock.poll_timeout().map(|at| whole_millis(at.since(now.steady)));
    }
}

fn take<T>(of: &mut Vec<(Ticket, T)>, ticket: Ticket) -> Option<T> {
    let at = of.iter().position(|(known, _)| *known == ticket)?;
    Some(of.swap_remove(at).1)
}

// --- what comes in, one function for each kind ---

fn surroundings(fields: &mut Fields<'_>) -> Result<Surroundings, Wrong> {
    let owner = Owner::parse(fields.text()?).map_err(said)?;
    Root::parse(fields.text()?).map_err(said)?;
    let folder = match fields.text()? {
        "guarded" => Folder::Guarded,
        "advisory" => Folder::Advisory,
        said => Folder::Absent { said: said.into() },
    };
    // Four numbers of 32 random bits.
    let mut seed = 0_u128;
    for _ in 0..4 {
        seed = (seed << 32) | u128::from(fields.small()?);
    }
    Ok(Surroundings { owner, folder, seed: seed.to_le_bytes() })
}

fn wanted(fields: &mut Fields<'_>) -> Result<Wanted, Wrong> {
    Ok(Wanted {
        profile: fields.maybe_text()?.map(Into::into),
        max_wait_ms: fields.maybe_number()?,
        web_lock_timeout_ms: fields.maybe_number()?,
        initial_delay_ms: fields.maybe_number()?,
        max_delay_ms: fields.maybe_number()?,
        multiplier: fields.maybe_number()?,
        max_attempts: fields.maybe_number()?,
        ttl_ms: fields.maybe_number()?,
        heartbeat_interval_ms: fields.maybe_number()?,
        preferred_strategy: fields.maybe_text()?.map(Into::into),
        reentrant: fields.flag()?,
        auto_resume: fields.maybe_flag()?,
        allow_advisory: fields.flag()?,
    })
}

/// What was read under the guard.
fn section(action: Action, fields: &mut Fields<'_>) -> Result<Section, Wrong> {
    let guard = fields.text()?.into();
    let modified = fields.maybe_whole()?.map(StoreTime::from_millis);
    let lock = match (fields.maybe_text()?, fields.maybe_text()?) {
        (_, Some(said)) => LockFile::Unreadable { modified, said: said.into() },
        (Some(text), None) => LockFile::Text { text: text.into(), modified: modified.unwrap_or_default() },
        (None, None) => LockFile::Missing,
    };
    Ok(Section::new(action, &Found { lock, guard }))
}

fn web_lock(fields: &mut Fields<'_>) -> Result<WebLock, Wrong> {
    let (result, said) = (fields.text()?, fields.text()?);
    Ok(match result {
        "granted" => WebLock::Granted,
        "unsupported" => WebLock::Unsupported,
        "stolen" => WebLock::Stolen,
        _ => WebLock::Denied { said: said.into() },
    })
}

fn news(fields: &mut Fields<'_>) -> Result<News, Wrong> {
    let fence = Fence::new(fields.whole()?).map_err(said)?;
    Ok(match fields.maybe_text()? {
        Some(owner) => {
            let why = fields.maybe_text()?.map(Reason::parse).transpose().map_err(said)?;
            News::Acquired { owner: Owner::parse(owner).map_err(said)?, fence, why }
        }
        None => News::Released { fence },
    })
}

fn io_error(fields: &mut Fields<'_>) -> Result<IoError, Wrong> {
    let (word, said) = (fields.text()?, fields.text()?);
    let known = IoKind::WORDS.iter().find(|(_, known)| *known == word);
    let (kind, _) = known.ok_or("no such kind")?;
    Ok(IoError { kind: *kind, said: said.into() })
}

fn probe(word: &str) -> Probe {
    match word {
        "free" => Probe::Free,
        "busy" => Probe::Busy,
        _ => Probe::Unknown,
    }
}

fn call(fields: &mut Fields<'_>) -> Result<CallId, Wrong> {
    fields.small().map(CallId)
}

fn ticket(fields: &mut Fields<'_>) -> Result<Ticket, Wrong> {
    fields.small().map(Ticket)
}

fn claim(fields: &mut Fields<'_>) -> Result<Claim, Wrong> {
    Ok(Claim { lease_id: id(fields)?, fence: Fence::new(fields.whole()?).map_err(said)? })
}

fn id(fields: &mut Fields<'_>) -> Result<LeaseId, Wrong> {
    LeaseId::parse(fields.text()?).map_err(said)
}

// By value, because that is how errors come.
#[allow(clippy::needless_pass_by_value)]
fn said(error: Invalid) -> Wrong {
    error.to_string().into()
}

// --- what goes out ---

/// What the host is told. Most of it is absent most of the time.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// What is wrong with the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    invalid: Option<Wrong>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    effects: Vec<EffectView>,
    /// When to come back, from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// The fence whose held file is to be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepView>,
    /// Why a save may not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const LEASE: &str = "3f1c0b1e-0000-4000-8000-000000000001";

    enum Word<'a> {
        Text(&'a str),
        Number(f64),
        Nothing,
    }

    use Word::{Nothing, Number, Text};

    /// Says something at this time, as the npm package does.
    fn say(tab: &mut Tab, at: f64, words: &[Word<'_>]) -> Value {
        let mut request = Vec::new();
        for word in [Number(1_767_225_600_000.0 + at), Number(at)].iter().chain(words) {
            match word {
                Nothing => request.push(0),
                Number(number) => request.extend([&[3][..], &number.to_le_bytes()].concat()),
                Text(text) => {
                    let length = u32::try_from(text.len()).unwrap();
                    request.extend([&[4][..], &length.to_le_bytes(), text.as_bytes()].concat());
                }
            }
        }
        serde_json::from_slice(&tab.handle(&request)).unwrap()
    }

    fn opened() -> Tab {
        let mut tab = Tab::default();
        let seed = [Number(1.0), Number(2.0), Number(3.0), Number(4.0)];
        let words = [Text("open"), Text("me"), Text("project"), Text("guarded")];
        let answer = say(&mut tab, 0.0, &words.into_iter().chain(seed).collect::<Vec<_>>());
        assert_eq!(answer, serde_json::json!({}));
        tab
    }

    fn ticket(answer: &Value, what: &str) -> f64 {
        let effects = answer["effects"].as_array().unwrap();
        let wanted = effects.iter().find(|effect| effect["do"] == what);
        wanted.unwrap_or_else(|| panic!("no {what} in {answer}"))["ticket"].as_f64().unwrap()
    }

    fn acquired() -> (Tab, Value) {
        let mut tab = opened();
        let web = ticket(&say(&mut tab, 0.0, &[Text("acquire"), Number(1.0)]), "requestWebLock");
        let answer = say(&mut tab, 1.0, &[Text("webLock"), Number(web), Text("granted"), Text("")]);
        let section = ticket(&answer, "guarded");
        say(&mut tab, 2.0, &[Text("section"), Number(section), Text("")]);
        let steps = say(&mut tab, 3.0, &[Text("decide"), Text("unknown")])["steps"].clone();
        let steps: Vec<_> =
            steps.as_array().unwrap().iter().map(|step| step["do"].as_str().unwrap()).collect();
        assert_eq!(steps, ["storeFence", "openHeld", "writeLock", "sweepHeld"]);
        let answer = say(&mut tab, 4.0, &[Text("guarded"), Number(section)]);
        let settled = answer["effects"].as_array().unwrap().iter().find(|effect| effect["do"] == "settle");
        let lease = settled.unwrap()["lease"].clone();
        assert_eq!(lease["guarantee"], "exclusive");
        (tab, lease)
    }

    #[test]
    fn a_lock_is_acquired_word_by_word() {
        acquired();
    }

    #[test]
    fn a_save_is_allowed_by_the_lock_file_alone() {
        let (mut tab, lease) = acquired();
        let claim = || [Text(lease["leaseId"].as_str().unwrap()), Number(lease["fence"].as_f64().unwrap())];
        let words = |word, rest: Vec<Word<'static>>| {
            std::iter::once(Text(word)).chain(claim()).chain(rest).collect::<Vec<_>>()
        };
        assert_eq!(say(&mut tab, 5.0, &words("claim", vec![Text("current.json")]))["error"], Value::Null);
        // Somebody has removed `.lock` in the meantime.
        assert_eq!(say(&mut tab, 6.0, &words("saveSection", vec![Text("")]))["error"], Value::Null);
        let answer = say(&mut tab, 7.0, &[Text("decide"), Text("unknown")]);
        assert_eq!(answer["error"]["code"], "lease-stale");
        assert!(answer["effects"].as_array().unwrap().iter().any(|effect| effect["do"] == "emit"));
    }

    /// Somebody wrote `extendByMs: 5` and was told that `ttlMs` was wrong, which they had not written.
    #[test]
    fn a_wrong_extension_is_refused_by_its_own_name() {
        let (mut tab, lease) = acquired();
        let words = [Text("renew"), Number(2.0), Text(lease["leaseId"].as_str().unwrap()), Number(5.0)];
        let answer = say(&mut tab, 5.0, &words);
        assert!(answer["invalid"].as_str().unwrap().contains("extendByMs"), "{answer}");
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let mut tab = opened();
        for words in [
            &[Text("nonsense")][..],
            &[Nothing],
            &[Text("acquire")],
            &[Text("acquire"), Number(1.0), Text("no such profile")],
            &[Text("release"), Number(1.0), Text("no lease id")],
            &[Text("section"), Number(7.0), Text("")],
            &[Text("decide"), Text("free")],
            &[Text("guarded"), Number(7.0)],
            &[Text("claim"), Text(LEASE), Number(1.0), Text("../outside")],
        ] {
            let answer = say(&mut tab, 1.0, words);
            assert!(answer["invalid"].is_string(), "{answer}");
            assert_eq!(answer["effects"], Value::Null);
        }
        assert!(say(&mut Tab::default(), 0.0, &[Text("timeout")])["invalid"].is_string());
        assert!(String::from_utf8(Tab::default().handle(&[9, 9])).unwrap().contains("invalid"));
    }
}
