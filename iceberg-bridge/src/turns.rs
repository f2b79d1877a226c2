//! Who waits for which commit of one table: at most one turn runs and one waits. A request joins
//! the running turn if that covers its cut, else the waiting one, whose cut grows until it starts.

use crate::log_reader::PartitionCut;
use floe_env::Error;
use tokio::sync::watch;

/// How a turn ended; `None` while it has not.
pub(crate) type TurnEnd = Option<Result<(), Error>>;

/// A commit that somebody wants.
#[derive(Debug)]
pub(crate) struct Turn {
    /// What it must cover.
    pub(crate) cut: Vec<PartitionCut>,
    /// Whether somebody looks at the table.
    is_look: watch::Sender<bool>,
    ended: watch::Sender<TurnEnd>,
}

impl Turn {
    fn new(cut: Vec<PartitionCut>, is_look: bool) -> Self {
        Self { cut, is_look: watch::Sender::new(is_look), ended: watch::Sender::new(None) }
    }

    /// Tells everybody who waits.
    pub(crate) fn end(self, end: Result<(), Error>) {
        self.ended.send_replace(Some(end));
    }
}

/// The turns of one table.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    running: Option<(Vec<PartitionCut>, watch::Receiver<TurnEnd>)>,
    waiting: Option<Turn>,
    has_runner: bool,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Tells when the turn has ended.
    pub(crate) ended: watch::Receiver<TurnEnd>,
    /// The caller must start the runner.
    pub(crate) start_runner: bool,
}

impl Turns {
    /// Joins the turn that will cover `cut`.
    pub(crate) fn join(&mut self, cut: Vec<PartitionCut>, is_look: bool) -> Joined {
        if let Some((running, ended)) = &self.running
            && covers(running, &cut)
        {
            return Joined { ended: ended.clone(), start_runner: false };
        }
        let start_runner = !self.has_runner;
        self.has_runner = true;
        let ended = match &mut self.waiting {
            Some(turn) => {
                grow(&mut turn.cut, &cut);
                if is_look {
                    turn.is_look.send_replace(true);
                }
                turn.ended.subscribe()
            }
            none => none.insert(Turn::new(cut, is_look)).ended.subscribe(),
        };
        Joined { ended, start_runner }
    }

    /// Whether somebody looks at the waiting turn's table; it may become true while the turn waits.
    /// `None` if none waits: the runner has then ended.
    pub(crate) fn peek(&mut self) -> Option<watch::Receiver<bool>> {
        let is_look = self.waiting.as_ref().map(|turn| turn.is_look.subscribe());
        self.has_runner = is_look.is_some();
        is_look
    }

    /// Starts the waiting turn.
    pub(crate) fn take(&mut self) -> Option<Turn> {
        let turn = self.waiting.take()?;
        self.running = Some((turn.cut.clone(), turn.ended.subscribe()));
        Some(turn)
    }

    /// The running turn has ended.
    pub(crate) fn finish(&mut self) {
        self.running = None;
    }
}

fn covers(running: &[PartitionCut], wanted: &[PartitionCut]) -> bool {
    wanted.iter().enumerate().all(|(partition, wanted)| {
        let end = running.get(partition).map_or(0, |ends| ends.last_stable_offset);
        end >= wanted.last_stable_offset
    })
}

/// Both ends of a partition only ever move forward, so the greater ones are the newer cut.
fn grow(cut: &mut Vec<PartitionCut>, newer: &[PartitionCut]) {
    for (ends, newer) in cut.iter_mut().zip(newer) {
        ends.log_start_offset = ends.log_start_offset.max(newer.log_start_offset);
        ends.last_stable_offset = ends.last_stable_offset.max(newer.last_stable_offset);
    }
    if newer.len() > cut.len() {
        cut.extend_from_slice(&newer[cut.len()..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(ends: &[i64]) -> Vec<PartitionCut> {
        let cut = |end: &i64| PartitionCut { log_start_offset: 0, last_stable_offset: *end };
        ends.iter().map(cut).collect()
    }

    #[test]
    fn one_runs_and_one_waits() {
        let mut turns = Turns::default();
        assert!(turns.join(cut(&[5]), false).start_runner);
        let running = turns.take().unwrap();
        let covered = turns.join(cut(&[4]), true);
        assert!(!covered.start_runner);
        let next = turns.join(cut(&[6]), false);
        let is_look = turns.peek().unwrap();
        assert!(!*is_look.borrow());
        let same = turns.join(cut(&[7, 2]), true);
        assert!(!next.start_runner && !same.start_runner);
        running.end(Ok(()));
        turns.finish();
        assert!(matches!(*covered.ended.borrow(), Some(Ok(()))));
        assert!(next.ended.borrow().is_none());
        assert!(*is_look.borrow() && *turns.peek().unwrap().borrow());
        let waiting = turns.take().unwrap();
        assert_eq!(waiting.cut, cut(&[7, 2]));
        waiting.end(Err(Error::retry("later")));
        turns.finish();
        assert!(matches!(*next.ended.borrow(), Some(Err(_))));
        assert!(matches!(*same.ended.borrow(), Some(Err(_))));
        assert!(turns.peek().is_none());
        assert!(turns.join(cut(&[8]), false).start_runner);
    }
}
