//! The server and its store. In the exclusive topology it is a shell around the product's own writer, as the embedded
//! store is: a queue, turns, and a disk that takes its time, fails, or fails with an unknown outcome. In the
//! shared one every turn is a transaction on a database.

use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::lease::LossReason;
use leasehold_core::{Event, EventKind, Position, Published};
use leasehold_store::resident::Staged;
use leasehold_store::writer::{Answer as _, Turn, View, Writer};
use leasehold_store::{Applied, Error, Feed, Limits, MAX_EVENTS, Range};

use crate::bug::Bug;
use crate::checker::Decided;
use crate::database::Database;
use crate::desk::{Answer, Asked};
use crate::disk::{Disk, Fate};
use crate::message::{Request, Sender, ToClient, ToServer};
use crate::setting::{Setting, Topology};
use crate::world::{Happening, World};

/// How long the writer waits for work before it moves the clock on by itself; the sweeper asks as often.
const TICK: u64 = 200;

/// How many of a thousand commands go to a server that was replaced.
const TO_THE_REPLACED: u64 = 300;

/// A process that answers clients.
#[derive(Default)]
pub struct Server {
    down: bool,
    life: u32,
    /// An operator starts it again only then.
    down_until: u64,
    paused_until: u64,
    queue: Vec<Asked>,
    /// Who waits for events, and after which position.
    feeds: BTreeMap<Sender, Position>,
}

/// The store, as it is run.
pub enum Engine {
    /// One server has it to itself.
    Exclusive {
        /// The product's own.
        writer: Writer<Disk>,
        /// The turn whose commit is under way.
        turn: Option<Pending>,
    },
    /// Several servers share it.
    Shared(Database),
}

/// A turn whose commit is under way.
pub struct Pending {
    turn: Turn<Answer>,
    fate: Fate,
    /// Whether a buggy server has already answered.
    answered: bool,
}

impl Engine {
    /// Starts from what is on disk.
    pub fn start(disk: &Disk, setting: &Setting, raw: u64, now: u64) -> Self {
        match setting.topology {
            Topology::Exclusive => {
                let disk = disk.open(setting.first_fence + now);
                let loaded = disk.rows().load();
                let writer = Writer::new(disk, loaded, raw, Limits::default());
                Self::Exclusive { writer, turn: None }
            }
            Topology::Shared(_) => Self::Shared(Database::new(disk.rows().load(), raw)),
        }
    }

    fn view(&self) -> &View {
        match self {
            Self::Exclusive { writer, .. } => writer.view(),
            Self::Shared(database) => database.view(),
        }
    }

    fn is_writing(&self) -> bool {
        matches!(self, Self::Exclusive { turn: Some(_), .. })
    }

    fn take_turn(&mut self) -> Option<Pending> {
        match self {
            Self::Exclusive { turn, .. } => turn.take(),
            Self::Shared(_) => None,
        }
    }
}

impl World {
    fn raw_clock(&self) -> u64 {
        self.setting.store_clock.read(self.now)
    }

    // --- what comes in ---

    pub(crate) fn server_hears(&mut self, at: usize, message: ToServer) {
        let Some(server) = self.servers.get_mut(at) else { return };
        if server.down {
            return;
        }
        if server.paused_until > self.now {
            let delay = server.paused_until - self.now;
            return self.after(delay, Happening::ToServer(at, message));
        }
        match message {
            ToServer::Apply(request) if self.replaced.is_some() && self.random.chance(TO_THE_REPLACED) => {
                self.ask_replaced(request);
            }
            ToServer::Apply(request) => {
                server.queue.push(self.desk.command(request, false));
                self.take_turn(at);
            }
            ToServer::Feed(from, after) => {
                server.feeds.retain(|known, _| known.client != from.client || known.life >= from.life);
                server.feeds.insert(from, after);
                self.tell_events(at);
            }
            ToServer::List(from) => {
                let page = self.engine.view().page(&Range::all());
                self.send_to_client(from, &ToClient::List(page));
            }
        }
    }

    pub(crate) fn tick(&mut self, at: usize, life: u32) {
        let Some(server) = self.servers.get_mut(at).filter(|server| server.life == life) else { return };
        if server.paused_until > self.now {
            let delay = server.paused_until - self.now;
            return self.after(delay, Happening::Tick(at, life));
        }
        server.queue.push(self.desk.sweep());
        self.take_turn(at);
        self.tell_events(at);
        self.after(TICK, Happening::Tick(at, life));
    }

    /// A buggy server comes back to a key that it found stale.
    pub(crate) fn take_stale(&mut self, at: usize, request: Rc<Request>) {
        let Some(server) = self.servers.get_mut(at).filter(|server| !server.down) else { return };
        server.queue.push(self.desk.command(request, true));
        self.take_turn(at);
    }

    fn take_turn(&mut self, at: usize) {
        let Some(server) = self.servers.get_mut(at) else { return };
        if server.down || server.paused_until > self.now || self.engine.is_writing() {
            return;
        }
        let asked = std::mem::take(&mut server.queue);
        match self.engine {
            Engine::Exclusive { .. } => self.begin_turn(asked),
            Engine::Shared(_) => self.transact(at, asked),
        }
    }

    /// What a buggy server found stale it comes back to after a while.
    fn put_off_stale(&mut self, at: usize) {
        for request in self.desk.take_stale() {
            let delay = self.random.between(1, 300);
            self.after(delay, Happening::SeenStale(at, request));
        }
    }

    // --- the product's writer ---

    fn begin_turn(&mut self, asked: Vec<Asked>) {
        let raw = self.raw_clock();
        let Engine::Exclusive { writer, .. } = &mut self.engine else { return };
        let reloads = writer.must_reload();
        let unreadable = reloads && !self.calm && self.random.chance(self.setting.faults.unreadable);
        self.disk.set_unreadable(unreadable);
        let turn = writer.begin(asked, raw);
        if reloads {
            self.tell(|_| match unreadable {
                true => "the server CANNOT READ its disk".into(),
                false => "the server reads its state anew from disk".into(),
            });
        }
        let Some(turn) = turn else { return self.deliver() };
        if reloads {
            self.checker.settle_promises(self.now);
        }
        self.put_off_stale(0);
        if turn.writes() {
            self.begin_commit(turn);
        } else {
            let (now, decided) = (turn.staged().now, decided(turn.answers()));
            self.checker.answered(self.now, now, decided);
            self.finish_turn(turn, false);
        }
    }

    fn begin_commit(&mut self, turn: Turn<Answer>) {
        let answered = self.bug == Some(Bug::AckBeforeDurable);
        if answered {
            self.answer_early(&turn);
        }
        if self.bug == Some(Bug::EventBeforeCommit) {
            self.tell_early(&turn.staged().events);
        }
        let faults = &self.setting.faults;
        let (failed, unknown, slow) = (faults.failed_writes, faults.unknown_writes, faults.slow_writes);
        let (fate, slow) = if self.calm {
            (Fate::Written, 0)
        } else if self.random.chance(failed) {
            (Fate::Failed, slow)
        } else if self.random.chance(unknown) {
            (Fate::Unknown { written: self.random.chance(500) }, slow)
        } else {
            (Fate::Written, slow)
        };
        let delay =
            if self.random.chance(slow) { self.random.between(20, 3_000) } else { self.random.between(1, 5) };
        if let Engine::Exclusive { turn: under_way, .. } = &mut self.engine {
            *under_way = Some(Pending { turn, fate, answered });
        }
        let life = self.servers.first().map_or(0, |server| server.life);
        self.after(delay, Happening::DiskDone(life));
    }

    pub(crate) fn disk_done(&mut self, life: u32) {
        if self.servers.first().is_none_or(|server| server.life != life) {
            return;
        }
        let Some(Pending { turn, fate, answered }) = self.engine.take_turn() else { return };
        self.disk.set_fate(fate);
        if fate.writes() {
            self.note_durable(turn.staged(), turn.answers());
        }
        if fate == Fate::Written {
            self.desk.remember(turn.staged());
        } else {
            self.tell(|_| format!("a write FAILS: {fate:?}"));
            self.checker.settle_promises(self.now);
        }
        self.finish_turn(turn, answered);
        if self.servers.first().is_some_and(|server| !server.queue.is_empty()) {
            self.take_turn(0);
        }
    }

    fn finish_turn(&mut self, turn: Turn<Answer>, answered: bool) {
        if let Engine::Exclusive { writer, .. } = &mut self.engine {
            writer.finish(turn);
        }
        if answered {
            self.desk.take_answers();
        }
        self.deliver();
        self.tell_events(0);
    }

    // --- a shared database ---

    /// The whole transaction at once; the server may not live to tell.
    fn transact(&mut self, at: usize, asked: Vec<Asked>) {
        let raw = self.raw_clock();
        let Engine::Shared(database) = &mut self.engine else { return };
        let (staged, answers) = database.decide(asked, raw);
        self.put_off_stale(at);
        let faults = &self.setting.faults;
        let (failed, unknown) = (faults.failed_writes, faults.unknown_writes);
        let mut lost = false;
        if staged.is_empty() {
            self.checker.answered(self.now, staged.now, decided(&answers));
        } else if !self.calm && self.random.chance(failed) {
            return self.refuse(answers);
        } else {
            self.note_durable(&staged, &answers);
            self.disk.rows_mut().write(&staged);
            self.desk.remember(&staged);
            lost = !self.calm && self.random.chance(unknown);
        }
        let Engine::Shared(database) = &self.engine else { return };
        let commit = database.commit(staged);
        if lost {
            self.tell(|_| "the connection to the database breaks after a commit".into());
            self.refuse(answers);
        } else {
            answers.into_iter().for_each(|answer| answer.send(&commit));
            self.deliver();
        }
        self.tell_events(at);
    }

    fn refuse(&mut self, answers: Vec<Answer>) {
        answers.into_iter().for_each(|answer| answer.refuse(Error::Closed));
        self.deliver();
    }

    // --- what goes out ---

    /// The checker learns of a transaction before the disk has it.
    fn note_durable(&mut self, staged: &Staged, answers: &[Answer]) {
        self.checker.durable(self.now, &self.disk.rows(), staged, decided(answers));
        for published in &staged.events {
            let Event { key, seq, fence, owner, kind, .. } = &published.event;
            self.tell(|_| format!("store: {key} #{seq} {owner} fence {fence}: {}", shown(kind)));
        }
    }

    /// Sends the answers that were given.
    fn deliver(&mut self) {
        for (request, applied) in self.desk.take_answers() {
            self.send_answer(request, applied);
        }
    }

    fn send_answer(&mut self, request: Rc<Request>, applied: Option<Applied>) {
        if let Some(applied) = &applied {
            self.checker.promised(&request.key, &request.command, &applied.outcome);
        }
        self.send_to_client(request.from, &ToClient::Applied(request, applied));
    }

    /// The mistake of [`Bug::AckBeforeDurable`].
    fn answer_early(&mut self, turn: &Turn<Answer>) {
        let (now, position) = (turn.staged().now, turn.staged().counters.position);
        for Decided { request, outcome, .. } in decided(turn.answers()) {
            let applied = Applied { outcome: outcome.clone(), now, position };
            self.send_answer(request.clone(), Some(applied));
        }
    }

    fn tell_events(&mut self, at: usize) {
        let view = self.engine.view();
        let Some(server) = self.servers.get(at) else { return };
        let waiting = server.feeds.iter();
        let ready =
            waiting.filter_map(|(to, after)| Some((*to, *after, view.events_after(*after, MAX_EVENTS)?)));
        for (to, after, feed) in ready.collect::<Vec<_>>() {
            if let Some(server) = self.servers.get_mut(at) {
                server.feeds.remove(&to);
            }
            self.send_to_client(to, &ToClient::Feed(after, feed));
        }
    }

    /// The mistake of [`Bug::EventBeforeCommit`].
    fn tell_early(&mut self, events: &[Published]) {
        let committed = self.engine.view().resident().counters.position;
        let Some(server) = self.servers.first_mut().filter(|_| !events.is_empty()) else { return };
        let feeds = std::mem::take(&mut server.feeds);
        for (to, after) in feeds {
            if after == committed {
                self.send_to_client(to, &ToClient::Feed(after, Feed::Events(events.to_vec())));
            } else if let Some(server) = self.servers.first_mut() {
                server.feeds.insert(to, after);
            }
        }
    }

    // --- a copy in the place of the file ---

    /// Copies the file, or puts the copy in its place as an operator should: the server is down, and stays so for one TTL, in
    /// which every client that holds a lease finds out that it cannot renew.
    pub(crate) fn put_back_copy(&mut self) {
        let up = self.servers.first().is_some_and(|server| !server.down);
        // Both clocks may be slow, the store's and the holder's.
        let down_until = self.now + 2 * self.setting.longest_ttl();
        let in_time = down_until < self.calm_at();
        if !up || !in_time || matches!(self.engine, Engine::Shared(_)) {
            return;
        }
        let Some(copy) = self.copy.take() else {
            self.copy = Some(self.disk.rows().clone());
            return self.tell(|_| "the file is COPIED".into());
        };
        if self.disk.put_back(&copy).is_none() {
            self.copy = Some(copy);
            return;
        }
        self.engine.take_turn();
        if let Some(server) = self.servers.first_mut() {
            (server.down, server.life, server.down_until) = (true, server.life + 1, down_until);
            (server.queue, server.feeds) = (Vec::new(), BTreeMap::new());
        }
        self.checker.put_back(&self.disk.rows());
        self.tell(|_| "the server is stopped, and the file PUT BACK to the copy".into());
        self.after(down_until - self.now, Happening::ServerBack(0));
    }

    // --- two servers on one file ---

    /// A second server begins with the file, although the first one has it open. What the first had under way comes to its
    /// commit after that. Some of the clients go on asking the first one.
    pub(crate) fn start_second_server(&mut self) {
        let raw = self.raw_clock();
        let Some(server) = self.servers.first_mut().filter(|server| !server.down) else { return };
        if matches!(self.engine, Engine::Shared(_)) {
            return;
        }
        server.life += 1;
        let life = server.life;
        self.check_kept_clock();
        let first =
            std::mem::replace(&mut self.engine, Engine::start(&self.disk, &self.setting, raw, self.now));
        self.tell(|_| "a SECOND SERVER is started on the file of the first".into());
        if let Engine::Exclusive { mut writer, turn } = first {
            if let Some(Pending { turn, .. }) = turn {
                self.commit_replaced(&mut writer, turn);
            }
            self.replaced = Some(writer);
        }
        self.after(0, Happening::Tick(0, life));
    }

    fn ask_replaced(&mut self, request: Rc<Request>) {
        let raw = self.raw_clock();
        let Some(mut writer) = self.replaced.take() else { return };
        self.disk.set_unreadable(false);
        if let Some(turn) = writer.begin(vec![self.desk.command(request, false)], raw) {
            self.commit_replaced(&mut writer, turn);
        }
        self.replaced = Some(writer);
        self.deliver();
    }

    /// A server that was replaced comes to its commit. Only a buggy one gets that far.
    fn commit_replaced(&mut self, writer: &mut Writer<Disk>, turn: Turn<Answer>) {
        self.disk.set_fate(Fate::Written);
        if self.bug == Some(Bug::EpochNotCompared) {
            self.tell(|_| "the first server commits all the same".into());
            match turn.writes() {
                true => self.note_durable(turn.staged(), turn.answers()),
                false => self.checker.answered(self.now, turn.staged().now, decided(turn.answers())),
            }
        }
        writer.finish(turn);
        self.deliver();
    }

    // --- ends and beginnings ---

    pub(crate) fn crash_server(&mut self, at: usize) {
        let away = self.random.pick(&[50, 500, 5_000, 60_000], 50);
        let away = self.random.between(1, away);
        let (coin, orderly) = (self.random.chance(500), self.random.chance(250));
        let Some(server) = self.servers.get_mut(at).filter(|server| !server.down) else { return };
        (server.down, server.life) = (true, server.life + 1);
        (server.queue, server.feeds) = (Vec::new(), BTreeMap::new());
        if !(orderly && self.end_writer()) {
            self.tell(|_| format!("server-{} CRASHES", at + 1));
            self.crash_writer(coin);
        }
        self.after(away, Happening::ServerBack(at));
    }

    /// Ends the writer in an orderly way, if it is not in the middle of something.
    fn end_writer(&mut self) -> bool {
        let raw = self.raw_clock();
        let Engine::Exclusive { writer, turn: None } = &mut self.engine else { return false };
        self.disk.set_unreadable(false);
        if writer.end(raw).is_err() {
            return false;
        }
        let (shown, kept) = (writer.view().now(), self.disk.rows().clock);
        self.checker.ended(self.now, shown, kept);
        self.tell(|_| "server-1 ENDS in an orderly way".into());
        true
    }

    /// A commit that was under way may have got through.
    fn crash_writer(&mut self, coin: bool) {
        if let Some(Pending { turn, fate, .. }) = self.engine.take_turn()
            && coin
            && fate != Fate::Failed
        {
            self.note_durable(turn.staged(), turn.answers());
            self.disk.rows_mut().write(turn.staged());
        }
        self.check_kept_clock();
    }

    /// The next server goes on from the time that is on disk.
    fn check_kept_clock(&mut self) {
        let Engine::Exclusive { writer, .. } = &self.engine else { return };
        let (shown, has_leases) = (writer.view().now(), writer.view().resident().has_leases());
        let kept = self.disk.rows().clock;
        if has_leases {
            self.checker.crashed(self.now, shown, kept);
        }
    }

    pub(crate) fn pause_server(&mut self, at: usize) {
        let away = self.random.pick(&[100, 2_000, 30_000], 100);
        let until = self.now + self.random.between(1, away);
        if let Some(server) = self.servers.get_mut(at) {
            server.paused_until = until;
        }
        self.tell(|_| format!("server-{} is PAUSED until {:.3} s", at + 1, until as f64 / 1_000.0));
    }

    pub(crate) fn server_back(&mut self, at: usize) {
        let (calm, keep) = (self.calm, self.random.pick(&[5, 50, 100_000], 100_000));
        let raw = self.raw_clock();
        let Some(server) = self.servers.get_mut(at) else { return };
        if calm {
            server.paused_until = server.paused_until.min(self.now);
        }
        if !server.down {
            return;
        }
        if server.down_until > self.now {
            let delay = server.down_until - self.now;
            return self.after(delay, Happening::ServerBack(at));
        }
        (server.down, server.paused_until) = (false, 0);
        let life = server.life;
        if matches!(self.engine, Engine::Exclusive { .. }) {
            self.disk.rows_mut().forget_events(keep);
            if self.bug == Some(Bug::FenceResetOnRestart) {
                self.disk.rows_mut().counters.last_fence = self.setting.first_fence;
            }
            self.engine = Engine::start(&self.disk, &self.setting, raw, self.now);
            self.checker.settle_promises(self.now);
        }
        self.tell(|_| format!("server-{} is back", at + 1));
        self.after(0, Happening::Tick(at, life));
    }
}

/// The decisions among the answers of a turn.
fn decided(answers: &[Answer]) -> impl Iterator<Item = &Decided> {
    answers.iter().filter_map(|answer| answer.decided.as_ref())
}

fn shown(kind: &EventKind) -> String {
    match kind {
        EventKind::Granted { expires_at, .. } => format!("GRANTED until {} ms", expires_at.as_millis()),
        EventKind::Ended { because } => {
            format!("ENDED, {}", LossReason::from(because).as_str())
        }
        other => format!("{other:?}"),
    }
}
