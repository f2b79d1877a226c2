//! Codecs: every output within its limit, and what other writers write.

use kfs::codec::{Codec, CodecError, compress, decompress};

const COMPRESSING: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 7 * index / 13) as u8).collect()
}

#[test]
fn round_trips_at_the_exact_limit() {
    for codec in COMPRESSING {
        for length in [0, 1, 100, 65_536, 200_000] {
            let input = sample(length);
            let stored = compress(codec, None, &input);
            assert_eq!(decompress(codec, &stored, length).unwrap(), input, "{codec} {length}");
            if length > 0 {
                let error = decompress(codec, &stored, length - 1).unwrap_err();
                assert_eq!(error, CodecError::OutputLimit { bytes_max: length - 1 }, "{codec}");
            }
        }
    }
}

#[test]
fn bombs_stop_at_the_limit() {
    let zeros = vec![0; 32 * 1024 * 1024];
    for codec in COMPRESSING {
        let bomb = compress(codec, None, &zeros);
        let error = decompress(codec, &bomb, 100_000).unwrap_err();
        assert_eq!(error, CodecError::OutputLimit { bytes_max: 100_000 }, "{codec}");
    }
}

#[test]
fn levels_are_clamped() {
    for codec in COMPRESSING {
        for level in [i32::MIN, -1, 0, 1, 9, 22, i32::MAX] {
            let stored = compress(codec, Some(level), b"some text, some text");
            assert_eq!(&*decompress(codec, &stored, 100).unwrap(), b"some text, some text");
        }
    }
}

#[test]
fn every_cut_is_an_error() {
    for codec in COMPRESSING {
        let input = sample(3000);
        let stored = compress(codec, None, &input);
        for length in 0..stored.len() {
            // Whole xerial blocks, or lz4 without its end mark, are seen by the record walk only.
            match decompress(codec, &stored[..length], 10_000) {
                Ok(output) => assert!(output.len() < input.len() || codec == Codec::Lz4),
                Err(CodecError::Corrupt { .. }) => {}
                // Half of xerial's magic reads as a raw block of 10 KiB and more.
                Err(CodecError::OutputLimit { .. }) if codec == Codec::Snappy && length < 8 => {}
                Err(error) => panic!("{codec}: {error}"),
            }
        }
    }
}

#[test]
fn raw_snappy_and_repeated_streams_are_read() {
    let raw = snap::raw::Encoder::new().compress_vec(b"raw raw raw raw").unwrap();
    assert_eq!(&*decompress(Codec::Snappy, &raw, 100).unwrap(), b"raw raw raw raw");
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Zstd] {
        let twice = [compress(codec, None, b"one"), compress(codec, None, b"two")].concat();
        assert_eq!(&*decompress(codec, &twice, 100).unwrap(), b"onetwo", "{codec}");
    }
}

#[test]
fn a_lie_about_the_length_allocates_nothing() {
    // A raw snappy block that claims 1 GiB.
    let lie = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00, 0x41];
    let error = decompress(Codec::Snappy, &lie, usize::MAX).unwrap_err();
    assert!(matches!(error, CodecError::Corrupt { .. }));
}
