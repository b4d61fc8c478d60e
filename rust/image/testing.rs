//! Files for the tests of this folder.

use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `f` with the path of a file of these bytes, which is deleted afterwards.
pub fn with_path<R>(bytes: &[u8], f: impl FnOnce(&str) -> R) -> R {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("rsnet-image-{}-{number}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let result = f(path.to_str().unwrap());
    std::fs::remove_file(path).unwrap();
    result
}

/// Lines of numbers, words and tabs, such as index and list files have, and bytes of any kind.
pub fn table_from_strangers() -> impl Strategy<Value = Vec<u8>> {
    let cell = prop_oneof![
        "-?[0-9]{1,22}",
        "[0-9.eE+-]{0,6}",
        prop::sample::select(vec!["", "nan", "-inf", "1e400", "x.jpg", "\u{85}"])
            .prop_map(str::to_owned),
    ];
    let line = prop::collection::vec(cell, 0..5).prop_map(|cells| cells.join("\t"));
    let text = prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n").into_bytes());
    prop_oneof![3 => text, 1 => prop::collection::vec(any::<u8>(), 0..60)]
}
