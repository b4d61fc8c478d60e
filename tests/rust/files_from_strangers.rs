//! Damaged symbol files: loading returns an error or a symbol that can be saved again, and never
//! panics.

use proptest::prelude::*;
use rsnet::graph::load_json;
use rsnet::operator::Registry;
use std::sync::OnceLock;

/// A file in the format of MXNet 1.x with fixed and variable counts of inputs, parameters of
/// several types, auxiliary states, hidden keys and several outputs.
const CURRENT: &str = r#"{"nodes": [
    {"op": "null", "name": "data", "inputs": []},
    {"op": "null", "name": "w", "attrs": {"__lr_mult__": "2.0"}, "inputs": []},
    {"op": "Convolution", "name": "c",
     "attrs": {"kernel": "(3, 3)", "num_filter": "4", "no_bias": "True"},
     "inputs": [[0, 0, 0], [1, 0, 0]]},
    {"op": "null", "name": "bn_gamma", "inputs": []},
    {"op": "null", "name": "bn_beta", "inputs": []},
    {"op": "null", "name": "bn_moving_mean", "inputs": []},
    {"op": "null", "name": "bn_moving_var", "inputs": []},
    {"op": "BatchNorm", "name": "bn", "attrs": {"eps": "0.001"},
     "inputs": [[2, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 1], [6, 0, 1]]},
    {"op": "SliceChannel", "name": "s", "attrs": {"num_outputs": "2"}, "inputs": [[7, 0, 0]]},
    {"op": "Concat", "name": "j", "attrs": {"num_args": "2", "dim": "1"},
     "inputs": [[8, 0, 0], [8, 1, 0]]}],
    "arg_nodes": [0, 1, 3, 4, 5, 6], "node_row_ptr": [0, 1, 2, 3, 4, 5, 6, 7, 10, 12, 13],
    "heads": [[9, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}"#;

/// A file of the 0.8 era.
const OLD: &str = r#"{"nodes": [
    {"op": "null", "param": {}, "name": "x", "inputs": [], "backward_source_id": -1},
    {"op": "null", "param": {}, "name": "w", "inputs": [], "backward_source_id": -1},
    {"op": "FullyConnected", "param": {"num_hidden": "3", "no_bias": "True"}, "name": "fc",
     "inputs": [[0, 0], [1, 0]], "backward_source_id": -1, "attr": {"weight_lr_mult": "2.0"}},
    {"op": "BatchNorm", "param": {}, "name": "bn", "inputs": [[2, 0]], "backward_source_id": -1}],
    "arg_nodes": [0, 1], "heads": [[3, 0]]}"#;

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(rsnet::ops::builtins)
}

/// Loads `text`; a symbol that loads must survive a round trip.
fn load(text: &str) {
    let Ok(loaded) = load_json(text, registry(), false, false) else { return };
    let written = loaded.value.to_json(false).expect("a loaded symbol can be saved");
    let again = load_json(&written, registry(), false, false).expect("a saved file can be loaded");
    assert_eq!(again.value.list_outputs(), loaded.value.list_outputs());
}

/// Replacement texts: hostile numbers, keys, brackets.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        "[\\[\\]{}:,\"0-9a-z ()-]{0,6}",
        prop::sample::select(vec![
            "18446744073709551615",
            "-1",
            "1e400",
            "[[",
            "null",
            "\"null\"",
            "\"Concat\"",
            "(0, 0)",
            "99999999999",
            "\\ud800",
            "[8, 7, 0]",
            "\"num_args\"",
            "\"attrs\"",
            "true",
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn spliced_files(
        old in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..24, fragment()), 1..5),
    ) {
        let mut text: Vec<char> = if old { OLD } else { CURRENT }.chars().collect();
        for (at, dropped, new) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + dropped).min(text.len());
            text.splice(at..end, new.chars());
        }
        load(&text.into_iter().collect::<String>());
    }

    /// Changes digits only, so that most files stay well-formed JSON and reach later checks.
    #[test]
    fn changed_numbers(
        old in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<i32>()), 1..5),
    ) {
        let mut text = if old { OLD } else { CURRENT }.to_owned();
        for (which, number) in edits {
            let digits: Vec<usize> =
                text.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(i, _)| i).collect();
            let at = digits[which.index(digits.len())];
            text.replace_range(at..=at, &number.rem_euclid(70).to_string());
        }
        load(&text);
    }
}

#[test]
fn the_undamaged_files_load() {
    for text in [CURRENT, OLD] {
        let loaded = load_json(text, registry(), false, false).unwrap();
        assert_eq!(loaded.value.list_outputs().len(), 1);
    }
}
