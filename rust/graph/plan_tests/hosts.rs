//! Outputs whose arrays hold other entries before.

use super::*;

#[test]
fn an_output_hosts_what_ends_before_it() {
    let r = registry();
    let layer = |name: &str, n: i64, x: Symbol| {
        with_params(&r, "FullyConnected", name, &[("num_hidden", n.into())], &[x])
    };
    let net = layer("c", 10, layer("b", 64, layer("a", 128, var("x"))));
    let mut request = request(&net, &[("x", &[64, 784])], OpReq::Null);
    let planned = plan(&request).unwrap();
    // `a` lies in the array of `c`, which is made as large; `b` is read when `c` is written.
    assert_eq!((planned.total_arena_bytes(), planned.output_bytes()), (64 * 64 * 4, 64 * 128 * 4));
    let hosted = planned.place.iter().filter(|p| matches!(p, Place::Output(0))).count();
    assert_eq!(hosted, 2);
    request.options.outputs_host = false;
    let apart = plan(&request).unwrap();
    assert_eq!((apart.total_arena_bytes(), apart.output_bytes()), (64 * 192 * 4, 64 * 10 * 4));
    // A limit bounds the arena, which the same plan meets.
    request.options.outputs_host = true;
    request.memory_limit = Some(64 * 64 * 4);
    assert_eq!(plan(&request).unwrap().output_bytes(), 64 * 128 * 4);
}
