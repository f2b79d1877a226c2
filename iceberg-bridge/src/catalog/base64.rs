//! Base64, as the Basic scheme of HTTP has it.

/// The bytes of a text in the standard alphabet, with or without padding. `None` where it is none.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        if chunk.len() == 1 {
            return None;
        }
        let mut bits = 0_u32;
        for byte in chunk {
            bits = bits << 6 | u32::from(value_of(*byte)?);
        }
        bits <<= 6 * (4 - chunk.len());
        bytes.extend(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

fn value_of(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn every_length_comes_back() {
        // RFC 4648, section 10.
        let samples = [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ];
        for (text, bytes) in samples {
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode("/+8="), Some(vec![0xff, 0xef]));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zm9vY", "Zm 9", "Zm-_", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
