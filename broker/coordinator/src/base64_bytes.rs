//! Opaque bytes as base64 text (RFC 4648, padded) in a stored record: `#[serde(with = ...)]`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    #[test]
    fn what_is_stored_stays_readable() {
        let samples: [(&[u8], &str); 4] = [
            (b"", r#""""#),
            (b"f", r#""Zg==""#),
            (b"foobar", r#""Zm9vYmFy""#),
            (&[0xff, 0xef], r#""/+8=""#),
        ];
        for (bytes, json) in samples {
            let mut stored = Vec::new();
            let mut serializer = serde_json::Serializer::new(&mut stored);
            super::serialize(&Bytes::from_static(bytes), &mut serializer).unwrap();
            assert_eq!(stored, json.as_bytes());
            let mut deserializer = serde_json::Deserializer::from_str(json);
            assert_eq!(super::deserialize(&mut deserializer).unwrap(), bytes);
        }
        for json in [r#""Zg""#, r#""Z===""#, r#""Zm9v!A==""#, "7"] {
            let mut deserializer = serde_json::Deserializer::from_str(json);
            assert!(super::deserialize(&mut deserializer).is_err(), "{json}");
        }
    }
}
