use futures::FutureExt as _;

use super::*;

const OUT: Stream = Stream::Output;

async fn text(reader: &mut Reader, bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < bytes {
        match reader.next().await.unwrap() {
            Piece::Output { bytes, .. } => all.extend(bytes),
            Piece::Skipped(count) => unreachable!("skipped {count}"),
        }
    }
    all
}

#[tokio::test]
async fn readers_get_scrollback_and_then_new_output() {
    let log = Arc::<OutputLog>::default();
    log.push(OUT, b"old");
    let (mut reader, offset) = log.reader(None).unwrap();
    let (mut later, later_offset) = log.reader(Some(2)).unwrap();
    assert_eq!((offset, later_offset), (0, 2));
    log.push(OUT, b"new");
    log.end();
    assert_eq!(text(&mut reader, 6).await, b"oldnew");
    assert_eq!(reader.next().await, None);
    assert_eq!(text(&mut later, 4).await, b"dnew");
    assert_eq!(log.reader(Some(100)).unwrap().1, 6);
}

#[tokio::test]
async fn readers_are_bounded() {
    let log = Arc::<OutputLog>::default();
    let mut readers: Vec<_> = (0..MAX_READERS)
        .map(|_| log.reader(None).unwrap())
        .collect();
    assert!(log.reader(None).is_none());
    readers.pop();
    assert!(log.reader(None).is_some());
}

#[tokio::test]
async fn complete_output_waits_for_the_slowest_reader_also_without_one() {
    let log = Arc::<OutputLog>::default();
    let piece = vec![1; usize::try_from(MAX_AHEAD_BYTES).unwrap()];
    log.append(OUT, &piece, Pace::Complete).await;
    let mut next = Box::pin(log.append(OUT, &piece, Pace::Complete));
    assert!((&mut next).now_or_never().is_none());
    let (mut fast, _) = log.reader(None).unwrap();
    let (mut slow, _) = log.reader(None).unwrap();
    text(&mut fast, piece.len()).await;
    assert!((&mut next).now_or_never().is_none());
    text(&mut slow, piece.len()).await;
    next.await;
    drop((fast, slow));
    let mut last = Box::pin(log.append(OUT, &piece, Pace::Complete));
    assert!((&mut last).now_or_never().is_none());
    // It continues at the last byte of the slowest reader.
    let (mut back, offset) = log.reader(Some(piece.len() as u64)).unwrap();
    assert_eq!(offset, piece.len() as u64);
    text(&mut back, piece.len()).await;
    last.await;
}

#[tokio::test(start_paused = true)]
async fn output_without_end_leaves_slow_readers_behind() {
    let log = Arc::<OutputLog>::default();
    let (mut slow, _) = log.reader(None).unwrap();
    let pace = Pace::UpTo(Duration::from_millis(100));
    let piece = vec![1; 16 << 10];
    let began = tokio::time::Instant::now();
    for _ in 0..100 {
        log.append(OUT, &piece, pace).await;
    }
    assert_eq!(began.elapsed(), Duration::from_millis(100));
    let kept = u64::try_from(100 * piece.len() - MAX_BYTES).unwrap();
    assert_eq!(slow.next().await, Some(Piece::Skipped(kept)));
    assert_eq!(text(&mut slow, MAX_BYTES).await.len(), MAX_BYTES);
}

#[tokio::test]
async fn scrollback_of_before_a_reader_is_old() {
    let log = Arc::<OutputLog>::default();
    log.push(OUT, b"a");
    let (mut reader, _) = log.reader(None).unwrap();
    log.push(Stream::Error, b"b");
    let old = reader.next().await.unwrap();
    let new = reader.next().await.unwrap();
    assert!(matches!(old, Piece::Output { is_old: true, .. }));
    assert!(matches!(new, Piece::Output { is_old: false, .. }));
}
