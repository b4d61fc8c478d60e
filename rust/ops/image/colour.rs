//! Changes of colour, mostly random: brightness, contrast, saturation, hue, lighting, random flips.

use super::{cut, expect_image, images_of};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::copy::copy;
use crate::kernels::image::Extent;
use crate::kernels::image::colour::{LIGHTING, luma, turn_hue};
use crate::kernels::normal::normal_pair;
use crate::kernels::philox::{philox, unit};
use crate::operator::infer::assign_shape;
use crate::operator::{
    Attrs, Call, Kernel, NoParam, OpDef, OpReq, ParamStruct, RandomKey, ResourceRequest,
};
use crate::ops::tensor::common::first_type;
use crate::{params, with_dtype};

params! {
    /// Parameters of the operators that draw a factor.
    pub struct FactorParam {
        min_factor: f32, required.ge(0.0), "The smallest factor.";
        max_factor: f32, required.ge(0.0), "The largest factor.";
    }
}

params! {
    /// Parameters of `_image_random_color_jitter`.
    pub struct JitterParam {
        brightness: f32, required.ge(0.0), "Factors of brightness differ from 1 by at most this.";
        contrast: f32, required.ge(0.0), "Factors of contrast differ from 1 by at most this.";
        saturation: f32, required.ge(0.0), "Factors of saturation differ from 1 by at most this.";
        hue: f32, required.ge(0.0), "The hue is turned by at most this part of the circle.";
    }
}

params! {
    /// Parameters of `_image_adjust_lighting`.
    pub struct LightingParam {
        alpha: Vec<f32>, required, "Three weights of the principal colours.";
    }
}

params! {
    /// Parameters of `_image_random_lighting`.
    pub struct RandomLightingParam {
        alpha_std: f32, default(0.05).ge(0.0), "Standard deviation of the weights.";
    }
}

/// One change of all pixels.
#[derive(Clone, Copy, Debug)]
enum Change {
    Brightness(f64),
    Contrast(f64),
    Saturation(f64),
    Hue(f64),
    /// Something added to each channel.
    Shift([f64; 3]),
}

/// Uniform and normal numbers of one call.
struct Draws {
    key: RandomKey,
    next: u64,
}

impl Draws {
    fn of(call: &Call<'_>) -> Self {
        Draws { key: call.ctx.random, next: 0 }
    }

    fn word(&mut self) -> u32 {
        self.next += 1;
        philox(self.key.seed, self.key.stream, self.next)[0]
    }

    fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * f64::from(unit(self.word()))
    }

    fn normal(&mut self) -> f64 {
        let [a, b] = [self.word(), self.word()].map(|word| f64::from(unit(word)));
        normal_pair(a, b)[0]
    }
}

const PIXELS: &str = "An image (H, W, C) of 1 or 3 channels and any dtype; results of integer \
                      dtypes are cut to whole numbers inside of their range. Not differentiable.";

fn factor_doc(what: &str, formula: &str, name: &str) -> String {
    format!(
        "Changes the {what} of an image by a factor drawn from [min_factor, max_factor).\n\n\
         {formula} {PIXELS}\n\nExamples\n--------\n>>> x = nd.ones((2, 2, 3))\n>>> \
         nd.image.{name}(x, 1, 1).shape\n(2, 2, 3)\n"
    )
}

pub fn operators() -> Vec<OpDef> {
    let factor = |name: &str, what: &str, formula: &str, change: fn(f64) -> Change| {
        let doc = factor_doc(what, formula, name);
        colours::<FactorParam>(name, &doc, true, move |attrs, draws| {
            let p: &FactorParam = attrs.get();
            Ok(vec![change(draws.uniform(p.min_factor.into(), p.max_factor.into()))])
        })
    };
    let mut all = vec![
        factor("random_brightness", "brightness", "``factor * x``.", Change::Brightness),
        factor(
            "random_contrast",
            "contrast",
            "``factor * x + (1 - factor) * m``, m the mean lightness (0.299 R + 0.587 G + 0.114 B) \
             of the image.",
            Change::Contrast,
        ),
        factor(
            "random_saturation",
            "saturation",
            "``factor * x + (1 - factor) * l``, l the lightness (0.299 R + 0.587 G + 0.114 B) of \
             the pixel.",
            Change::Saturation,
        ),
        factor(
            "random_hue",
            "hue",
            "The hue of each pixel is turned by the factor, 1 being the whole circle; lightness \
             and saturation of the colour model HLS are kept.",
            Change::Hue,
        ),
        colours::<JitterParam>("random_color_jitter", &jitter_doc(), true, jitter),
        colours::<LightingParam>("adjust_lighting", &lighting_doc(), false, |attrs, _| {
            let alpha = &attrs.get::<LightingParam>().alpha;
            match alpha[..] {
                [r, g, b] => Ok(vec![lighting([r, g, b].map(f64::from))]),
                _ => Err(Error::argument("alpha", "number of elements", alpha.len(), 3)),
            }
        }),
        colours::<RandomLightingParam>(
            "random_lighting",
            &random_lighting_doc(),
            true,
            |attrs, draws| {
                let std = f64::from(attrs.get::<RandomLightingParam>().alpha_std);
                Ok(vec![lighting([0, 1, 2].map(|_| std * draws.normal()))])
            },
        ),
    ];
    all.extend([("random_flip_left_right", 1), ("random_flip_top_bottom", 0)].map(random_flip));
    all
}

fn jitter_doc() -> String {
    format!(
        "Changes brightness, contrast, saturation and hue of an image at random, in random \
         order.\n\nFactors of the first three are drawn from [1 - p, 1 + p), the turn of the hue \
         from [-hue, hue). {PIXELS}\n\nExamples\n--------\n>>> x = nd.ones((2, 2, 3))\n>>> \
         nd.image.random_color_jitter(x, 0.1, 0.1, 0.1, 0.1).shape\n(2, 2, 3)\n"
    )
}

fn lighting_doc() -> String {
    format!(
        "Adds the principal colours of ImageNet's pixels with the weights ``alpha`` to every \
         pixel.\n\nA grey image stays as it is. {PIXELS}\n\nExamples\n--------\n>>> \
         nd.image.adjust_lighting(nd.zeros((1, 1, 3)), alpha=(0.1, 0, 0))\n[[[-3.147355  \
         -3.2211168 -3.2366457]]]\n\nReferences\n----------\nA. Krizhevsky et al., ImageNet \
         Classification with Deep Convolutional Neural Networks, 2012.\n"
    )
}

fn random_lighting_doc() -> String {
    format!(
        "As ``adjust_lighting``, with weights drawn from a normal distribution of standard \
         deviation ``alpha_std``.\n\n{PIXELS}\n\nExamples\n--------\n>>> \
         nd.image.random_lighting(nd.zeros((1, 1, 3)), alpha_std=0)\n[[[0. 0. 0.]]]\n"
    )
}

/// An operator that applies changes to the pixels of an image, and perhaps draws them.
fn colours<P: ParamStruct>(
    name: &str,
    doc: &str,
    random: bool,
    changes: impl Fn(&Attrs, &mut Draws) -> Result<Vec<Change>> + Send + Sync + 'static,
) -> OpDef {
    let def = one_image::<P>(name, doc, random, false);
    def.kernel(Kernel::cpu(move |call| {
        if call.req[0] == OpReq::Null {
            return Ok(());
        }
        let changes = changes(call.attrs, &mut Draws::of(call))?;
        with_dtype!(call.inputs[0].dtype(), T => change_all::<T>(call, &changes));
        Ok(())
    }))
}

fn one_image<P: ParamStruct>(name: &str, doc: &str, random: bool, any_channels: bool) -> OpDef {
    let full = format!("_image_{name}");
    let def = OpDef::new::<P>(&full)
        .aliases(&[&format!("_npx_{full}")])
        .doc(doc)
        .inputs_are(&[("data", "The image.")])
        .infer_shape(move |_, inputs, outputs| {
            let shape = inputs[0].clone();
            assign_shape(&mut outputs[0], "output", &shape)?;
            let shape = outputs[0].clone();
            assign_shape(&mut inputs[0], "data", &shape)?;
            expect_image(&shape)?;
            let channels = shape.rank_known().then(|| shape.dims()[2]);
            if !any_channels && !matches!(channels, None | Some(-1 | 1 | 3)) {
                let expected = "1 or 3 channels on the last axis";
                return Err(Error::argument("data", "shape", shape, expected));
            }
            Ok(shape.is_known())
        })
        .infer_type(first_type);
    if random { def.resources(&[ResourceRequest::Random]) } else { def }
}

fn jitter(attrs: &Attrs, draws: &mut Draws) -> Result<Vec<Change>> {
    let p: &JitterParam = attrs.get();
    let mut all: Vec<Change> = Vec::with_capacity(4);
    let kinds: [(f32, fn(f64) -> Change, f64); 4] = [
        (p.brightness, Change::Brightness, 1.0),
        (p.contrast, Change::Contrast, 1.0),
        (p.saturation, Change::Saturation, 1.0),
        (p.hue, Change::Hue, 0.0),
    ];
    for (range, change, middle) in kinds {
        let range = f64::from(range);
        let drawn = draws.uniform(middle - range, middle + range);
        // Every place is as likely as any other.
        let place = draws.word() as usize % (all.len() + 1);
        if range > 0.0 {
            all.insert(place, change(drawn));
        }
    }
    Ok(all)
}

fn lighting(alpha: [f64; 3]) -> Change {
    Change::Shift(LIGHTING.map(|row| row.iter().zip(alpha).map(|(e, a)| e * a).sum()))
}

fn change_all<T: Element>(call: &Call<'_>, changes: &[Change]) {
    let (_, extent) = images_of(call.inputs[0].shape());
    // SAFETY: the output is ours to write and overlaps no input.
    let (x, y) = unsafe { (call.inputs[0].slice::<T>(), call.outputs[0].slice_mut::<T>()) };
    y.copy_from_slice(x);
    for change in changes {
        apply(extent, y, *change);
    }
}

fn apply<T: Element>(extent: Extent, x: &mut [T], change: Change) {
    let mix = |factor: f64, other: f64| {
        move |v: &mut T| *v = cut(factor * (*v).to_f64() + (1.0 - factor) * other)
    };
    let grey = extent.channels == 1;
    match change {
        Change::Brightness(factor) => x.iter_mut().for_each(mix(factor, 0.0)),
        Change::Contrast(factor) => {
            let mean = mean_luma(extent, x);
            x.iter_mut().for_each(mix(factor, mean));
        }
        Change::Saturation(_) | Change::Hue(_) | Change::Shift(_) if grey => {}
        Change::Saturation(factor) => {
            for pixel in x.chunks_exact_mut(3) {
                let lightness = luma(parts(pixel));
                pixel.iter_mut().for_each(mix(factor, lightness));
            }
        }
        Change::Hue(turns) => {
            for pixel in x.chunks_exact_mut(3) {
                write(pixel, turn_hue(parts(pixel), turns));
            }
        }
        Change::Shift(shift) => {
            for pixel in x.chunks_exact_mut(3) {
                let old = parts(pixel);
                write(pixel, [0, 1, 2].map(|i| old[i] + shift[i]));
            }
        }
    }
}

fn parts<T: Element>(pixel: &[T]) -> [f64; 3] {
    [0, 1, 2].map(|i| pixel[i].to_f64())
}

fn write<T: Element>(pixel: &mut [T], parts: [f64; 3]) {
    for (v, part) in pixel.iter_mut().zip(parts) {
        *v = cut(part);
    }
}

fn mean_luma<T: Element>(extent: Extent, x: &[T]) -> f64 {
    let pixels = extent.height * extent.width;
    let sum: f64 = match extent.channels {
        1 => x.iter().map(|v| v.to_f64()).sum(),
        _ => x.chunks_exact(3).map(|pixel| luma(parts(pixel))).sum(),
    };
    sum / pixels.max(1) as f64
}

/// An operator that mirrors along an axis of (H, W, C), or not.
fn random_flip((name, axis): (&str, usize)) -> OpDef {
    let side = if axis == 1 { "left and right" } else { "top and bottom" };
    let doc = format!(
        "Exchanges {side} of an image (H, W, C) with probability 1/2.\n\nAny dtype; not \
         differentiable.\n\nExamples\n--------\n>>> nd.image.{name}(nd.ones((2, 3, 1))).shape\n(2, \
         3, 1)\n"
    );
    let def = one_image::<NoParam>(name, &doc, true, true);
    def.kernel(Kernel::cpu(move |call| {
        if call.req[0] == OpReq::Null {
            return Ok(());
        }
        if Draws::of(call).word() & 1 == 0 {
            copy(&call.inputs[0], &call.outputs[0]);
        } else {
            with_dtype!(call.inputs[0].dtype(), T => flip::<T>(call, axis));
        }
        Ok(())
    }))
}

fn flip<T: Element>(call: &Call<'_>, axis: usize) {
    let (_, extent) = images_of(call.inputs[0].shape());
    // SAFETY: the output is ours to write and overlaps no input.
    let (x, y) = unsafe { (call.inputs[0].slice::<T>(), call.outputs[0].slice_mut::<T>()) };
    let item = if axis == 0 { extent.row() } else { extent.channels };
    let line = if axis == 0 { extent.size() } else { extent.row() };
    if item == 0 || line == 0 {
        return;
    }
    for (x, y) in x.chunks_exact(line).zip(y.chunks_exact_mut(line)) {
        for (from, to) in x.chunks_exact(item).rev().zip(y.chunks_exact_mut(item)) {
            to.copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::testing::*;

    // The figures were read off MXNet 1.9.1, but for saturation, where it counts blue only.
    #[test]
    fn numbers_as_mxnets() {
        let x: Vec<f64> = (0..24).map(f64::from).collect();
        let x = [Tensor::of(&[2, 4, 3], &x)];
        let near = |op: &str, p: &[(&'static str, &'static str)], want: &[f64]| {
            let y = values(op, p, &x);
            let worst = y.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-4, "{op}: {:?} {want:?}", &y[..want.len()]);
        };
        let factor = |f| [("min_factor", f), ("max_factor", f)];
        near("_image_random_brightness", &factor("1.5"), &[0., 1.5, 3.]);
        near("_image_random_contrast", &factor("1.5"), &[-5.6575, -4.1575, -2.6575]);
        near("_image_random_saturation", &factor("0.5"), &[0.4075, 0.9075, 1.4075]);
        near("_image_random_hue", &factor("0.3"), &[2., 0., 1.4, 5., 3., 4.4]);
        let alpha = [("alpha", "(0.1,0.2,0.3)")];
        near("_image_adjust_lighting", &alpha, &[-2.31972, -2.50577, -1.75807, 0.68028]);
        let nothing = [("brightness", "0"), ("contrast", "0"), ("saturation", "0"), ("hue", "0")];
        near("_image_random_color_jitter", &nothing, &[0., 1., 2., 3.]);
    }

    #[test]
    fn integers_stay_inside_of_their_range() {
        let x = [Tensor::new(&[1, 2, 3], DType::U8, &[0., 1., 2., 3., 200., 255.])];
        let p = [("min_factor", "1.5"), ("max_factor", "1.5")];
        assert_eq!(values("_image_random_brightness", &p, &x), [0., 1., 3., 4., 255., 255.]);
        let two = [Tensor::of(&[1, 1, 2], &[0., 1.])];
        assert!(run("_image_random_brightness", &p, &two, false).is_err());
        let grey = [Tensor::of(&[1, 2, 1], &[3., 4.])];
        assert_eq!(values("_image_random_hue", &p, &grey), [3., 4.]);
        assert!(run("_image_adjust_lighting", &[("alpha", "(1,2)")], &x, false).is_err());
    }
}
