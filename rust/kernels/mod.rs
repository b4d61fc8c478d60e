//! CPU kernels: views in, views out. They know neither arrays nor the engine, and split their work
//! only through [`parallel`]. `naive` holds the scalar reference of each.

pub mod activations;
pub mod arch;
pub mod arith;
pub mod broadcast;
pub mod choose;
pub mod conv;
pub mod copy;
pub mod ctc;
pub mod elementwise;
pub mod fft;
pub mod fixed_loop;
pub mod gemm;
pub mod image;
pub mod int8;
pub mod kept;
pub mod layer_norm;
pub mod layout;
pub mod leading;
pub mod linalg;
pub mod map;
pub mod math;
pub mod naive;
pub mod norm;
pub mod normal;
pub mod pairwise;
pub mod parallel;
pub mod philox;
pub mod pooling;
pub mod random;
pub mod real;
pub mod reduce;
pub mod reduce_rows;
pub mod rnn;
pub mod scalar;
pub mod scatter;
pub mod schur;
pub mod scratch;
pub mod separable;
pub mod softmax;

/// Initialises what the underlying libraries set up once per process, on first use.
pub fn prepare_libraries() {
    gemm::prepare();
    // A thread of a pool initialises the collector that all pools share. (Where no thread can
    // start, no pool uses it either.)
    if let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        pool.install(|| ());
    }
}
