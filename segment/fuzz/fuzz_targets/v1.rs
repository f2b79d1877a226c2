//! See `kfs::hostile::v1`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfs::hostile::v1(data));
