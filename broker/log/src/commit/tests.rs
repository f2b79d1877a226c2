use super::*;

#[test]
fn a_range_is_taken_out_of_the_pieces_that_hold_it() {
    let pieces = vec![Bytes::from("abcd"), Bytes::from("efgh"), Bytes::from("ij")];
    let mut placed = place_pieces(pieces, 100);
    assert_eq!(take_range(&mut placed, 102, 2), vec![Bytes::from("cd")]);
    assert_eq!(take_range(&mut placed, 104, 5), vec![Bytes::from("efgh"), Bytes::from("i")]);
    assert_eq!(take_range(&mut placed, 109, 1), vec![Bytes::from("j")]);
}
