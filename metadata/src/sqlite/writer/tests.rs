//! What one failed call, a failed COMMIT and a full disk do to the calls beside them.

use super::*;
use floe_env::ErrorKind;

/// A job, and where its answer comes.
type Sent = (Box<dyn Job>, oneshot::Receiver<Result<usize>>);

struct Fixture {
    writer: WriterState,
    _directory: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let connection = super::super::open::open_writer(&directory.path().join("meta.db")).unwrap();
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON;
             CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER
                 REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
             CREATE TABLE filler (bytes BLOB);",
        )
        .unwrap();
    Fixture { writer: WriterState { connection, failure: None }, _directory: directory }
}

fn job<F>(work: F) -> Sent
where
    F: FnOnce(&Connection) -> SqlResult<usize> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Call { work: Some(work), answer: None, reply }), answer)
}

fn insert(id: i64) -> impl FnOnce(&Connection) -> SqlResult<usize> {
    move |sql| Ok(sql.execute("INSERT INTO parent VALUES (?1)", [id])?)
}

impl Fixture {
    fn run(&mut self, jobs: Vec<Sent>) -> Vec<Result<usize>> {
        let (jobs, answers): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        self.writer.run_all(jobs);
        answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect()
    }

    fn parents(&self) -> i64 {
        let count = "SELECT count(*) FROM parent";
        self.writer.connection.query_row(count, [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn a_failed_call_leaves_the_others_alone() {
    let mut fixture = fixture();
    let fails = job(|sql: &Connection| {
        sql.execute("INSERT INTO parent VALUES (2)", [])?;
        Err(Error::fenced("no").into())
    });
    let answers = fixture.run(vec![job(insert(1)), fails, job(insert(3)), job(insert(3))]);
    assert_eq!(*answers[0].as_ref().unwrap(), 1);
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(*answers[2].as_ref().unwrap(), 1);
    assert_eq!(answers[3].as_ref().unwrap_err().kind(), ErrorKind::Bug);
    assert_eq!(fixture.parents(), 2);
}

#[test]
fn a_failed_call_that_is_alone_leaves_nothing() {
    let mut fixture = fixture();
    let fails = job(|sql: &Connection| {
        sql.execute("INSERT INTO parent VALUES (2)", [])?;
        Err(Error::fenced("no").into())
    });
    assert_eq!(fixture.run(vec![fails])[0].as_ref().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(fixture.parents(), 0);
    assert!(fixture.run(vec![job(insert(1))])[0].is_ok());
    assert_eq!(fixture.parents(), 1);
}

#[test]
fn a_failed_commit_fails_every_call_and_nothing_stays() {
    let mut fixture = fixture();
    let orphan = job(|sql: &Connection| Ok(sql.execute("INSERT INTO child VALUES (1, 9)", [])?));
    let failed = job(|_: &Connection| Err(Error::fenced("no").into()));
    let answers = fixture.run(vec![job(insert(1)), orphan, failed]);
    // The deferred foreign key makes COMMIT fail: certainly nothing happened.
    for answer in &answers[..2] {
        assert_eq!(answer.as_ref().unwrap_err().kind(), ErrorKind::Bug);
    }
    assert_eq!(answers[2].as_ref().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(fixture.parents(), 0);
    assert!(fixture.run(vec![job(insert(1))])[0].is_ok());
}

#[test]
fn a_full_disk_is_unavailable_and_passes() {
    let mut fixture = fixture();
    let sql = &fixture.writer.connection;
    let pages: i64 = sql.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    sql.pragma_update_and_check(None, "max_page_count", pages + 2, |_| Ok(())).unwrap();
    let large = || {
        job(|sql: &Connection| Ok(sql.execute("INSERT INTO filler VALUES (zeroblob(100000))", [])?))
    };
    let answers = fixture.run(vec![job(insert(1)), large(), job(insert(2))]);
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    let made = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(fixture.parents(), made as i64);
    for answer in [&answers[0], &answers[2]] {
        assert!(answer.as_ref().err().is_none_or(Error::is_transient));
    }
    let sql = &fixture.writer.connection;
    sql.pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(())).unwrap();
    assert!(fixture.run(vec![large()])[0].is_ok());
}

#[test]
fn a_commit_in_doubt_stops_the_writer() {
    let mut fixture = fixture();
    let io = rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC),
        None,
    );
    assert_eq!(fixture.writer.commit_failed(io).kind(), ErrorKind::UnknownOutcome);
    let answers = fixture.run(vec![job(insert(1))]);
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(fixture.parents(), 0);
}

#[test]
fn a_transaction_that_sqlite_gave_up_fails_the_earlier_calls_only() {
    let mut fixture = fixture();
    let gives_up = job(|sql: &Connection| {
        sql.execute_batch("ROLLBACK")?;
        Err(Error::unavailable("full").into())
    });
    let answers = fixture.run(vec![job(insert(1)), gives_up, job(insert(2))]);
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(answers[1].as_ref().unwrap_err().message(), "full");
    assert!(answers[2].is_ok());
    assert_eq!(fixture.parents(), 1);
}
