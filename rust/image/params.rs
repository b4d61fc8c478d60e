//! Parameters of the iterators over image records, under MXNet's names.

use crate::dtype::DType;
use crate::operator::Tuple;
use crate::{param_enum, params};

param_enum! {
    /// The treatment of records that cannot be read.
    pub enum Damaged { Raise = "error", Skip = "skip" }
}

param_enum! {
    /// Accepted and without effect: batches are made in the memory of the CPU.
    pub enum DeviceKind { Cpu = "cpu", Gpu = "gpu" }
}

param_enum! {
    /// The rule by which a crop loses objects.
    pub enum Emit { Center = "center", Overlap = "overlap" }
}

param_enum! {
    /// The rule by which an image takes the size of the batch.
    pub enum Fit { Force = "force", Shrink = "shrink", Fit = "fit" }
}

params! {
    /// The records of an iterator, and its batches.
    pub struct BatchParam {
        path_imgrec: String, default(String::new()), "The record file; several with ';' between \
                                                      them.";
        path_imgidx: String, default(String::new()), "Its index; without it the file is scanned.";
        path_imglist: String, default(String::new()), "A list file, whose labels are taken instead \
                                                       of the records'.";
        aug_seq: String, default(String::new()), "Accepted and without effect: there is one \
                                                  sequence of augmentations.";
        label_width: i32, default(1), "Labels of an image; detection: -1 for any number.";
        data_shape: Tuple, required, "(channels, height, width) of an image of the batch.";
        preprocess_threads: i32, default(4).ge(1.0), "Threads that decode, at most one per core.";
        verbose: bool, default(true), "Report what is read.";
        num_parts: i32, default(1).ge(1.0), "Number of parts that the records are divided into.";
        part_index: i32, default(0).ge(0.0), "The part to read.";
        device_id: i32, default(0), "Accepted and without effect.";
        shuffle_chunk_size: u64, default(0), "Accepted and without effect: all records are \
                                              shuffled.";
        shuffle_chunk_seed: i32, default(0), "Accepted and without effect.";
        seed_aug: Option<i32>, default(None), "Seed of the augmentations; without it, that of \
                                               shuffling.";
        shuffle: bool, default(false), "Shuffle the records in every epoch.";
        seed: i32, default(0), "Seed of shuffling.";
        batch_size: u32, required.ge(1.0), "Images of a batch.";
        round_batch: bool, default(true), "Fill the last batch with the first images of the next \
                                           epoch.";
        prefetch_buffer: u64, default(4).ge(1.0), "Batches that are made ahead.";
        ctx: DeviceKind, default(DeviceKind::Gpu), "Accepted and without effect.";
        dtype: Option<DType>, default(None), "dtype of the images; None is that of the iterator.";
        label_pad_width: i32, default(0), "Detection: width of a batch's labels; 0 and -1 are that \
                                           of the longest.";
        label_pad_value: f32, default(-1.0), "Detection: what fills shorter labels.";
        damaged: Damaged, default(Damaged::Raise), "What a damaged record does: raise an error, or \
                                                    be skipped and counted.";
    }
}

params! {
    /// The conversion of pixels to numbers.
    pub struct NormalizeParam {
        mean_img: String, default(String::new()), "File of the mean image; it is calculated where \
                                                   there is none.";
        mean_r: f32, default(0.0), "Subtracted from red, or from the only channel.";
        mean_g: f32, default(0.0), "Subtracted from green.";
        mean_b: f32, default(0.0), "Subtracted from blue.";
        mean_a: f32, default(0.0), "Subtracted from the fourth channel.";
        std_r: f32, default(1.0), "What red, or the only channel, is divided by.";
        std_g: f32, default(1.0), "What green is divided by.";
        std_b: f32, default(1.0), "What blue is divided by.";
        std_a: f32, default(1.0), "What the fourth channel is divided by.";
        scale: f32, default(1.0), "A factor of all numbers.";
        max_random_contrast: f32, default(0.0).ge(0.0), "A factor is drawn from 1 plus or minus \
                                                         this.";
        max_random_illumination: f32, default(0.0).ge(0.0), "A summand is drawn from plus or minus \
                                                             this.";
        mirror: bool, default(false), "Mirror every image.";
        rand_mirror: bool, default(false), "Mirror an image with probability 1/2.";
    }
}

params! {
    /// The augmentation of images.
    pub struct AugmentParam {
        resize: i32, default(-1), "Size of the shorter edge before all else; -1 leaves it.";
        rand_crop: bool, default(false), "Take the part anywhere, not in the middle.";
        random_resized_crop: bool, default(false), "Take a part of random area and ratio, and \
                                                    resize it.";
        max_rotate_angle: i32, default(0), "Rotate by degrees from plus or minus this.";
        max_aspect_ratio: f32, default(0.0), "Ratio of width and height: from 1 plus or minus \
                                              this, or up to this.";
        min_aspect_ratio: Option<f32>, default(None), "The smallest ratio; max_aspect_ratio is the \
                                                       largest then.";
        max_shear_ratio: f32, default(0.0), "Shear (x, y) to (x + m y, y), m from plus or minus \
                                             this.";
        max_crop_size: i32, default(-1), "The part taken is a square of at most this size, and is \
                                          resized.";
        min_crop_size: i32, default(-1), "The part taken is a square of at least this size, and is \
                                          resized.";
        max_random_scale: f32, default(1.0), "The largest factor of the size.";
        min_random_scale: f32, default(1.0), "The smallest factor of the size.";
        max_random_area: f32, default(1.0), "The largest share of the image with \
                                             random_resized_crop.";
        min_random_area: f32, default(1.0), "The smallest share of the image with \
                                             random_resized_crop.";
        max_img_size: f32, default(1e10), "The largest height and width after scaling and \
                                           rotation.";
        min_img_size: f32, default(0.0), "The smallest height and width after scaling and \
                                          rotation.";
        brightness: f32, default(0.0).ge(0.0), "Factors of brightness: 1 plus or minus this.";
        contrast: f32, default(0.0).ge(0.0), "Factors of contrast: 1 plus or minus this.";
        saturation: f32, default(0.0).ge(0.0), "Factors of saturation: 1 plus or minus this.";
        pca_noise: f32, default(0.0).ge(0.0), "Standard deviation of the lighting's weights.";
        random_h: i32, default(0).ge(0.0), "Added to the hue (0 to 180): plus or minus this.";
        random_s: i32, default(0).ge(0.0), "Added to the saturation (0 to 255): plus or minus \
                                            this.";
        random_l: i32, default(0).ge(0.0), "Added to the lightness (0 to 255): plus or minus this.";
        rotate: i32, default(-1), "Rotate by this many degrees; -1 leaves it to max_rotate_angle.";
        fill_value: i32, default(255).ge(0.0).le(255.0), "Value of pixels beyond the image.";
        inter_method: i32, default(1), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 by \
                                        size, 10 random.";
        pad: i32, default(0).ge(0.0), "Pixels put around the image.";
    }
}

params! {
    /// The augmentation of images together with the boxes of their objects.
    pub struct DetectParam {
        resize: i32, default(-1), "Size of the shorter edge before all else; -1 leaves it.";
        rand_crop_prob: f32, default(0.0), "Probability of a crop.";
        min_crop_scales: Vec<f32>, default(vec![0.0]), "Smallest size of a crop, as a part of the \
                                                        image; one per sampler.";
        max_crop_scales: Vec<f32>, default(vec![1.0]), "Largest size of a crop.";
        min_crop_aspect_ratios: Vec<f32>, default(vec![1.0]), "Smallest ratio of a crop's width \
             and height.";
        max_crop_aspect_ratios: Vec<f32>, default(vec![1.0]), "Largest ratio of a crop's width and \
             height.";
        min_crop_overlaps: Vec<f32>, default(vec![0.0]), "Smallest intersection over union with an \
                                                          object.";
        max_crop_overlaps: Vec<f32>, default(vec![1.0]), "Largest intersection over union with an \
                                                          object.";
        min_crop_sample_coverages: Vec<f32>, default(vec![0.0]), "Smallest part of the crop that \
             an object covers.";
        max_crop_sample_coverages: Vec<f32>, default(vec![1.0]), "Largest part of the crop that an \
             object covers.";
        min_crop_object_coverages: Vec<f32>, default(vec![0.0]), "Smallest part of an object \
             inside of the crop.";
        max_crop_object_coverages: Vec<f32>, default(vec![1.0]), "Largest part of an object inside \
             of the crop.";
        num_crop_sampler: i32, default(1).ge(1.0), "Number of samplers; one is chosen at random.";
        crop_emit_mode: Emit, default(Emit::Center), "Objects are lost by their centre, or by \
                                                      their overlap.";
        emit_overlap_thresh: f32, default(0.3), "Objects of smaller overlap are lost, with \
                                                 crop_emit_mode='overlap'.";
        max_crop_trials: Tuple, default(Tuple::from_slice(&[25])), "Attempts of a sampler.";
        rand_pad_prob: f32, default(0.0), "Probability of padding.";
        max_pad_scale: f32, default(1.0), "Largest factor of the size by padding.";
        max_random_hue: i32, default(0).ge(0.0), "Added to the hue (0 to 180): plus or minus this.";
        random_hue_prob: f32, default(0.0), "Probability of another hue.";
        max_random_saturation: i32, default(0).ge(0.0), "Added to the saturation (0 to 255): plus \
                                                         or minus this.";
        random_saturation_prob: f32, default(0.0), "Probability of another saturation.";
        max_random_illumination: i32, default(0).ge(0.0), "Added to the lightness (0 to 255): plus \
                                                           or minus this.";
        random_illumination_prob: f32, default(0.0), "Probability of another lightness.";
        max_random_contrast: f32, default(0.0).ge(0.0), "Factors of contrast: 1 plus or minus \
                                                         this.";
        random_contrast_prob: f32, default(0.0), "Probability of another contrast.";
        rand_mirror_prob: f32, default(0.0), "Probability of mirroring.";
        fill_value: i32, default(127).ge(0.0).le(255.0), "Value of pixels beyond the image.";
        inter_method: i32, default(1), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 by \
                                        size, 10 random.";
        resize_mode: Fit, default(Fit::Force), "Take the batch's size regardless of the ratio; \
                                                shrink or fit into it.";
    }
}
