//! See `kfs::hostile::footer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfs::hostile::footer(data));
