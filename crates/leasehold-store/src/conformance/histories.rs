//! Law 11: a script of commands, run on any two stores, gives the same history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::job::{JobCommand, JobOutcome, JobText};
use leasehold_core::lease::{Bid, OnSilence, Proof, Right};
use leasehold_core::{Command, Fence, Outcome, Owner, Position, Reason, TabId, Ttl};

use super::party::{COUNTDOWN, Party, all_events, apply, key, kind_detail};
use super::{Harness, JobHarness, Restart};
use crate::{Applied, JobApplied, Range};

/// One step of a script for [`same_history`].
#[derive(Clone, Debug)]
pub struct Step {
    /// How long to wait before it.
    pub wait: Duration,
    /// Which of the keys.
    pub key: u8,
    /// Which of the parties, each with a few lease ids of its own.
    pub party: u8,
    /// What the party does.
    pub act: Act,
}

/// What a party of a script can do. Fences and requests are those that it last saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each is the command of the same name
pub enum Act {
    Acquire,
    AcquireAnew,
    Renew,
    Release,
    /// By lease id and owner.
    RenewAsHolder,
    /// By the lease id of the party, and under another's name.
    RenewAsAnother,
    /// By owner and tab, in a tab with this number.
    AcquireInTab(u8),
    RenewInTab(u8),
    ReleaseInTab(u8),
    SoftRelease,
    Resume,
    TakeOver,
    /// End the lease, with the fence of the lease that is there.
    ForceRelease,
    Request(OnSilence),
    Told,
    Answer(bool),
    Withdraw,
    Check,
    SettleDue,
    Restart,
    /// Something about the job of the same number.
    Job(JobAct),
}

impl Act {
    /// Whether a document cannot do it: it knows no other documents, and a hash cannot be given back as a lease id.
    fn needs_a_store(self) -> bool {
        let by_tab = matches!(self, Self::AcquireInTab(_) | Self::RenewInTab(_) | Self::ReleaseInTab(_));
        by_tab || self == Self::SettleDue
    }
}

/// What somebody may do with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the same as in `JobCommand`
pub enum JobAct {
    Create,
    CreateAnother,
    Acquire,
    AcquireAnew,
    Refresh,
    Release,
    Complete,
    Fail(bool),
    Reset,
}

/// Law 11: runs a script and answers everything that can be observed, fences and times made comparable. Two stores of
/// a level give the same for the same script.
pub async fn same_history(harness: &dyn Harness, script: &[Step]) -> Vec<String> {
    let mut history = History::new(harness, Level::Store).await;
    for step in script {
        if step.act == Act::SettleDue {
            harness.advance(step.wait).await;
            while harness.store().settle_due(100).await.unwrap().keys > 0 {}
        } else {
            history.step(harness, step).await;
        }
    }
    history.add_events(harness).await;
    history.finish()
}

/// The same for what can be observed of single documents: no events, no lists, and fences compared within a key.
pub async fn same_job_history(harness: &dyn JobHarness, script: &[Step]) -> Vec<String> {
    let mut history = History::new(harness, Level::Job).await;
    for step in script.iter().filter(|step| !step.act.needs_a_store()) {
        history.step(harness, step).await;
    }
    history.finish()
}

/// What is compared: a whole store, or documents that know nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Store,
    Job,
}

struct History {
    level: Level,
    start: leasehold_core::StoreTime,
    from: Position,
    /// Which fences were seen, by what they are compared within.
    fences: BTreeSet<(u8, u64)>,
    parties: BTreeMap<(u8, u8), Party>,
    last_seen: BTreeMap<u8, (Fence, u64)>,
    lines: Vec<Vec<Piece>>,
}

/// A piece of an observation; a fence is replaced by its rank in the end.
enum Piece {
    Text(String),
    Fence(u8, u64),
}

impl History {
    async fn new(harness: &dyn JobHarness, level: Level) -> Self {
        let reading = harness.job_store().read(&key("history")).await.unwrap();
        Self {
            level,
            start: reading.now,
            from: reading.position,
            fences: BTreeSet::new(),
            parties: BTreeMap::new(),
            last_seen: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// What the fences of a key are compared within.
    fn within(&self, key: u8) -> u8 {
        if self.level == Level::Store { 0 } else { key }
    }

    /// How many events had been told, where there are any.
    fn told(&self, position: Position) -> String {
        match self.level {
            Level::Store => format!(" after {} events", position.0 - self.from.0),
            Level::Job => String::new(),
        }
    }

    async fn step(&mut self, harness: &dyn JobHarness, step: &Step) {
        harness.advance(step.wait).await;
        let key = key(&format!("history-{}", step.key));
        match step.act {
            Act::Restart => {
                harness.restart(Restart::Orderly).await;
            }
            Act::Job(act) => self.job_step(harness, step, act).await,
            _ => {
                let command = self.command(step);
                let applied = apply(harness, &key, command).await;
                self.learn(step, &applied);
                self.observe(step, &applied);
            }
        }
    }

    async fn job_step(&mut self, harness: &dyn JobHarness, step: &Step, act: JobAct) {
        let key = key(&format!("history-job-{}", step.key));
        // Another party than the one that wants the lease of the same number.
        let worker = Step { party: step.party + 8, ..step.clone() };
        let command = job_command(self.party(&worker), act);
        let JobApplied { outcome, record, now, position } =
            harness.job_store().apply_job(&key, command).await.unwrap();
        if let JobOutcome::Acquired { lease, .. } = &outcome {
            if self.level == Level::Store {
                self.fences.insert((0, lease.fence.get()));
            }
            self.party(&worker).fence = Some(lease.fence);
        }
        let word = format!("{outcome:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let job = record.job.map(|job| {
            let status = format!("{:?}", job.status).split([' ', '{']).next().unwrap_or_default().to_owned();
            format!("{status} {} {} {:?}", job.attempts, job.begun, job.changed_at.since(self.start))
        });
        let (after, told) = (now.since(self.start), self.told(position));
        let text = format!("{after:?} {}:{} {act:?} -> {word} {job:?}{told}", step.key, step.party);
        self.lines.push(vec![Piece::Text(text)]);
    }

    fn party(&mut self, step: &Step) -> &mut Party {
        let seed = step.key * 16 + step.party;
        self.parties.entry((step.key, step.party)).or_insert_with(|| Party {
            owner: Owner::parse(&format!("party-{}", step.party)).unwrap(),
            ..Party::numbered(u64::from(seed))
        })
    }

    fn command(&mut self, step: &Step) -> Command {
        let (fence, request) = self.last_seen.get(&step.key).copied().unwrap_or((Fence::new(1).unwrap(), 0));
        let party = self.party(step);
        let claim = Proof { lease_id: party.lease_id, fence: party.fence.unwrap_or(fence) };
        let countdown = Ttl::new(COUNTDOWN).unwrap();
        match step.act {
            Act::AcquireAnew => {
                party.renew_id();
                Command::Acquire(party.bid())
            }
            Act::Renew => Command::Renew { claim: claim.into(), ttl: None },
            Act::Release => Command::Release(claim.into()),
            Act::RenewAsHolder => Command::Renew { claim: party.holder(), ttl: None },
            Act::RenewAsAnother => Command::Renew { claim: party.stolen_by("another"), ttl: None },
            Act::AcquireInTab(tab) => {
                party.renew_id();
                Command::AcquireInTab(Bid { tab: numbered_tab(tab), ..party.bid() })
            }
            Act::RenewInTab(tab) => Command::Renew { claim: party.in_tab(numbered_tab(tab)), ttl: None },
            Act::ReleaseInTab(tab) => Command::Release(party.in_tab(numbered_tab(tab))),
            Act::SoftRelease => {
                Command::SoftRelease { lease_id: party.lease_id, grace: Ttl::from_secs(5).unwrap() }
            }
            Act::Resume => {
                party.renew_id();
                Command::Resume { claim: claim.into(), next: party.lease_id }
            }
            Act::ForceRelease => {
                Command::ForceRelease { seen: fence, by: party.owner.clone(), reason: Reason::default() }
            }
            Act::TakeOver => Command::TakeOver {
                seen: fence,
                bid: party.bid(),
                reason: Reason::default(),
                right: Right::Force,
            },
            Act::Request(on_silence) => Command::RequestHandover {
                seen: fence,
                bid: party.bid(),
                on_silence,
                countdown,
                patience: countdown,
            },
            Act::Told => Command::HandoverTold { claim: claim.into(), request },
            Act::Answer(hand_over) => Command::AnswerHandover { claim: claim.into(), request, hand_over },
            Act::Withdraw => Command::Withdraw { lease_id: party.lease_id, owner: party.owner.clone() },
            Act::Check => Command::Check { fence },
            Act::Acquire | Act::SettleDue | Act::Restart | Act::Job(_) => Command::Acquire(party.bid()),
        }
    }

    fn learn(&mut self, step: &Step, applied: &Applied) {
        let seen = match &applied.outcome {
            Outcome::Granted { lease, .. } | Outcome::Renewed(lease) | Outcome::Shortened(lease) => {
                // A tab gets its lease again under the lease id that it has.
                let party = self.party(step);
                (party.fence, party.lease_id) = (Some(lease.fence), lease.lease_id);
                Some((lease.fence, lease.request.as_ref().map(|request| request.seq)))
            }
            Outcome::Requested { held, request } => Some((held.fence, Some(request.seq))),
            Outcome::Held(held) | Outcome::NotYours(held) | Outcome::Lost { held: Some(held), .. } => {
                Some((held.fence, None))
            }
            _ => None,
        };
        if let Some((fence, request)) = seen {
            self.fences.insert((self.within(step.key), fence.get()));
            let known = self.last_seen.get(&step.key).map_or(0, |(_, request)| *request);
            self.last_seen.insert(step.key, (fence, request.unwrap_or(known)));
        }
    }

    fn observe(&mut self, step: &Step, applied: &Applied) {
        let after = applied.now.since(self.start);
        let mut line = vec![Piece::Text(format!("{after:?} {}:{} {:?} -> ", step.key, step.party, step.act))];
        line.extend(self.outcome(self.within(step.key), &applied.outcome));
        line.push(Piece::Text(self.told(applied.position)));
        self.lines.push(line);
    }

    fn outcome(&self, within: u8, outcome: &Outcome) -> Vec<Piece> {
        let word = format!("{outcome:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let text = |text: String| vec![Piece::Text(text)];
        let held = |by: &Owner, fence: Fence, until: leasehold_core::StoreTime| {
            let until = until.since(self.start);
            vec![Piece::Text(format!("{word} {by} until {until:?} ")), Piece::Fence(within, fence.get())]
        };
        match outcome {
            Outcome::Granted { lease, .. } | Outcome::Renewed(lease) | Outcome::Shortened(lease) => {
                held(&lease.owner, lease.fence, lease.expires_at)
            }
            Outcome::Held(other) | Outcome::NotYours(other) => held(&other.by, other.fence, other.until),
            Outcome::Lost { because, held: Some(other) } => {
                let mut pieces = text(format!("{because:?} "));
                pieces.extend(held(&other.by, other.fence, other.until));
                pieces
            }
            Outcome::Lost { because, held: None } => text(format!("{word} {because:?}")),
            Outcome::Checked { current, .. } => text(format!("{word} {current}")),
            Outcome::Requested { request, .. } => {
                text(format!("{word} {}", request.lapses_at.since(self.start).as_millis()))
            }
            Outcome::Told { ends_at } => text(format!("{word} {}", ends_at.since(self.start).as_millis())),
            _ => text(word),
        }
    }

    /// Adds what was told, and what is left.
    async fn add_events(&mut self, harness: &dyn Harness) {
        for event in all_events(harness, self.from).await {
            self.fences.insert((0, event.fence.get()));
            let at = event.at.since(self.start);
            let mut line = vec![Piece::Text(format!(
                "event {at:?} {} {} {} {} ",
                event.key,
                event.seq,
                event.owner,
                kind_detail(&event, self.start)
            ))];
            line.push(Piece::Fence(0, event.fence.get()));
            self.lines.push(line);
        }
        for (key, slot) in harness.store().list(&Range::prefix("run/history-")).await.unwrap().slots {
            let lease = slot.lease.unwrap();
            let text =
                format!("left {key} {} {} {:?} ", slot.seq, lease.owner, lease.expires_at.since(self.start));
            self.lines.push(vec![Piece::Text(text), Piece::Fence(0, lease.fence.get())]);
        }
    }

    fn finish(self) -> Vec<String> {
        let rank = |within: u8, fence: u64| self.fences.range((within, 0)..(within, fence)).count();
        let show = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Fence(within, fence) => format!("fence #{}", rank(*within, *fence)),
        };
        self.lines.iter().map(|line| line.iter().map(show).collect()).collect()
    }
}

/// The tab with this number; 0 is none.
fn numbered_tab(number: u8) -> Option<TabId> {
    (number > 0).then(|| TabId::parse(&format!("tab-{number}")).unwrap())
}

fn job_command(worker: &mut Party, act: JobAct) -> JobCommand {
    let text = |text: &str| JobText::parse(text).unwrap();
    let claim = Proof { lease_id: worker.lease_id, fence: worker.fence.unwrap_or(Fence::new(1).unwrap()) };
    match act {
        JobAct::Create => JobCommand::Create { payload: text("payload"), max_attempts: Some(4) },
        JobAct::CreateAnother => JobCommand::Create { payload: text("another"), max_attempts: None },
        JobAct::Acquire => JobCommand::Acquire(worker.bid()),
        JobAct::AcquireAnew => {
            worker.renew_id();
            JobCommand::Acquire(worker.bid())
        }
        JobAct::Refresh => JobCommand::Refresh { claim: claim.into(), ttl: None },
        JobAct::Release => JobCommand::Release(claim.into()),
        JobAct::Complete => JobCommand::Complete { claim: claim.into(), result: text("42") },
        JobAct::Fail(retryable) => JobCommand::Fail { claim: claim.into(), error: text("broken"), retryable },
        JobAct::Reset => JobCommand::Reset,
    }
}
