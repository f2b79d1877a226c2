use super::*;
use bytes::Bytes;

fn asked(index: i32) -> AskedPartition {
    AskedPartition { name: TopicName::default(), id: Uuid::from_u128(1), index }
}

fn want(offset: i64) -> Want {
    Want { offset, bytes_max: 100, current_leader_epoch: -1, last_fetched_epoch: -1 }
}

fn request(id: i32, epoch: i32, wanted: &[(i32, i64)]) -> SessionRequest {
    SessionRequest {
        id,
        epoch,
        uses_ids: true,
        wanted: wanted.iter().map(|(index, offset)| (asked(*index), want(*offset))).collect(),
        forgotten: Vec::new(),
    }
}

fn got(high_watermark: i64, records: &'static [u8]) -> FetchedPartition {
    FetchedPartition {
        high_watermark,
        log_start_offset: 0,
        error: ErrorCode::None,
        records: vec![Bytes::from_static(records)],
        ..FetchedPartition::failed(0, ErrorCode::None)
    }
}

fn indexes(fetch: &SessionFetch) -> Vec<i32> {
    fetch.wanted.iter().map(|wanted| wanted.asked.index).collect()
}

/// A session over partitions 0 and 1 whose high watermarks are 5.
fn open(sessions: &FetchSessions) -> i32 {
    let fetch = sessions.begin(request(0, 0, &[(0, 0), (1, 0)])).expect("full");
    let (id, listed) = sessions.finish(&fetch, &[got(5, b""), got(5, b"")]);
    assert_eq!(listed, vec![true, true]);
    assert!(id > 0);
    id
}

#[tokio::test]
async fn a_sessionless_request_gets_session_0_and_everything() {
    let sessions = FetchSessions::new(Env::current());
    let fetch = sessions.begin(request(0, -1, &[(0, 0)])).expect("sessionless");
    assert_eq!(sessions.finish(&fetch, &[got(5, b"")]), (0, vec![true]));
}

#[tokio::test]
async fn an_incremental_answer_lists_only_news() {
    let sessions = FetchSessions::new(Env::current());
    let id = open(&sessions);
    let fetch = sessions.begin(request(id, 1, &[])).expect("incremental");
    assert_eq!(indexes(&fetch), vec![0, 1]);
    assert_eq!(sessions.finish(&fetch, &[got(5, b""), got(6, b"")]), (id, vec![false, true]));
    let fetch = sessions.begin(request(id, 2, &[])).expect("incremental");
    assert_eq!(sessions.finish(&fetch, &[got(5, b""), got(6, b"")]), (id, vec![false, false]));
}

#[tokio::test]
async fn partitions_with_records_move_to_the_end() {
    let sessions = FetchSessions::new(Env::current());
    let id = open(&sessions);
    let fetch = sessions.begin(request(id, 1, &[])).expect("incremental");
    sessions.finish(&fetch, &[got(5, b"records"), got(5, b"")]);
    let fetch = sessions.begin(request(id, 2, &[(0, 7)])).expect("incremental");
    assert_eq!(indexes(&fetch), vec![1, 0]);
    assert_eq!(fetch.wanted[1].want.offset, 7);
}

#[tokio::test]
async fn an_error_is_told_every_time_and_so_is_its_end() {
    let sessions = FetchSessions::new(Env::current());
    let id = open(&sessions);
    let failed = || FetchedPartition::failed(0, ErrorCode::UnknownTopicId);
    for epoch in 1..=2 {
        let fetch = sessions.begin(request(id, epoch, &[])).expect("incremental");
        assert_eq!(sessions.finish(&fetch, &[failed(), got(5, b"")]).1, vec![true, false]);
    }
    let fetch = sessions.begin(request(id, 3, &[])).expect("incremental");
    assert_eq!(sessions.finish(&fetch, &[got(5, b""), got(5, b"")]).1, vec![true, false]);
}

#[tokio::test]
async fn a_topic_that_was_found_once_is_known_to_have_been_deleted() {
    let sessions = FetchSessions::new(Env::current());
    let id = open(&sessions);
    let was_found = |fetch: &SessionFetch| -> Vec<bool> {
        fetch.wanted.iter().map(|wanted| wanted.was_found).collect()
    };
    let fetch = sessions.begin(request(id, 1, &[(2, 0)])).expect("incremental");
    assert_eq!(was_found(&fetch), vec![true, true, false]);
    let unknown = || FetchedPartition::failed(0, ErrorCode::UnknownTopicId);
    sessions.finish(&fetch, &[unknown(), got(5, b""), unknown()]);
    let fetch = sessions.begin(request(id, 2, &[])).expect("incremental");
    assert_eq!(was_found(&fetch), vec![true, true, false]);
}

#[tokio::test]
async fn wrong_sessions_and_epochs_are_told_and_harm_nothing() {
    let sessions = FetchSessions::new(Env::current());
    let id = open(&sessions);
    let refused = |request| sessions.begin(request).err();
    assert_eq!(refused(request(id ^ 1, 1, &[])), Some(ErrorCode::FetchSessionIdNotFound));
    assert_eq!(refused(request(0, 1, &[])), Some(ErrorCode::FetchSessionIdNotFound));
    assert_eq!(refused(request(id, 2, &[])), Some(ErrorCode::InvalidFetchSessionEpoch));
    let by_name = SessionRequest { uses_ids: false, ..request(id, 1, &[]) };
    assert_eq!(refused(by_name), Some(ErrorCode::FetchSessionTopicIdError));
    assert!(sessions.begin(request(id, 1, &[])).is_ok());
}

#[tokio::test]
async fn a_full_request_ends_the_session_that_it_names() {
    let sessions = FetchSessions::new(Env::current());
    let id = open(&sessions);
    sessions.begin(request(id, -1, &[(0, 0)])).expect("sessionless");
    assert_eq!(sessions.begin(request(id, 1, &[])).err(), Some(ErrorCode::FetchSessionIdNotFound));
}

#[tokio::test]
async fn forgotten_partitions_leave_the_session() {
    let sessions = FetchSessions::new(Env::current());
    let id = open(&sessions);
    let forgetting = SessionRequest { forgotten: vec![asked(0)], ..request(id, 1, &[(2, 0)]) };
    let fetch = sessions.begin(forgetting).expect("incremental");
    assert_eq!(indexes(&fetch), vec![1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_full_house_makes_room_only_for_sessions_that_were_idle_long_enough() {
    let env = Env::current();
    let sessions = FetchSessions::new(env.clone());
    let first = open(&sessions);
    for _ in 1..SESSIONS_MAX {
        open(&sessions);
    }
    let fetch = sessions.begin(request(0, 0, &[(0, 0)])).expect("full");
    assert_eq!(sessions.finish(&fetch, &[got(5, b"")]).0, 0);
    env.sleep(EVICTABLE_AFTER).await;
    assert!(sessions.finish(&fetch, &[got(5, b"")]).0 > 0);
    let is_gone = sessions.begin(request(first, 1, &[])).is_err();
    let others = sessions.sessions.lock().len();
    assert!(is_gone || others == SESSIONS_MAX);
}

#[test]
fn epochs_wrap_to_1() {
    assert_eq!(next_epoch(i32::MAX), 1);
}
