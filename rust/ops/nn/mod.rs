//! Operators of neural networks: layers, activations, normalisations, loss heads, matrix products.

pub mod activation;
pub mod attention;
pub mod batch_norm;
mod channels_first;
pub mod convolution;
pub mod crop_pad;
pub mod ctc_loss;
pub mod deconvolution;
pub mod dot;
pub mod dropout;
pub mod embedding;
pub mod fully_connected;
pub mod group_norm;
pub mod hawkes;
pub mod im2col;
pub mod infer;
pub mod layer_norm;
pub mod leaky_relu;
pub mod loss;
pub mod lrn;
pub mod pooling;
pub mod regression;
pub mod rnn;
pub mod roi_pooling;
pub mod sequence;
pub mod softmax;
pub mod softmax_output;
pub mod sparse_penalty;
mod sync_batch_norm;
pub mod upsampling;
pub mod widening;
pub mod window;

use super::higher_order::complete;
use crate::operator::{OpDef, Registry};

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] = &[
        fully_connected::operators,
        activation::operators,
        softmax::operators,
        softmax_output::operators,
        regression::operators,
        loss::operators,
        dropout::operators,
        embedding::operators,
        dot::operators,
        convolution::operators,
        pooling::operators,
        sequence::operators,
        roi_pooling::operators,
        rnn::operators,
        ctc_loss::operators,
        layer_norm::operators,
        group_norm::operators,
        lrn::operators,
        crop_pad::operators,
        deconvolution::operators,
        upsampling::operators,
        leaky_relu::operators,
        batch_norm::operators,
        sync_batch_norm::operators,
        im2col::operators,
        attention::operators,
        hawkes::operators,
        sparse_penalty::operators,
    ];
    for family in families {
        for def in family() {
            registry.add(complete(def)).expect("built-in operators have names of their own");
        }
    }
}
