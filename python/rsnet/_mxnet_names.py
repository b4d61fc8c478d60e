"""Public names of MXNet 1.9.1's modules, for messages about those that rsnet does not have.

The empty key is the package itself. Only modules are listed of which rsnet has a part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._on_demand import import_on_demand

NAMES: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "": """
            AttrScope Context MXNetError api attribute autograd base callback context contrib cpu
            cpu_pinned current_context engine error executor executor_manager gluon gpu image img
            init initializer io is_np_array is_np_shape kv kvstore libinfo library log lr_scheduler
            metric mod model module mon monitor name nd ndarray ndarray_doc notebook np np_array
            np_shape np_symbol npx numpy numpy_dispatch_protocol numpy_extension numpy_op_fallback
            numpy_op_signature onnx operator optimizer profiler random recordio registry rnd rnn rtc
            runtime set_np_shape sym symbol symbol_doc test_utils th torch tvmop use_np use_np_array
            use_np_shape util visualization viz
        """,
        "callback": """
            LogValidationMetricsCallback ProgressBar Speedometer do_checkpoint log_train_metric
            module_checkpoint
        """,
        "base": """
            MXCallbackList MXNetError NotImplementedForSymbol NotSupportedForSparseNDArray
            add_fileline_to_docstring build_param_doc c2pyerror c_array c_array_buf c_handle_array
            c_str c_str_array check_call classproperty ctypes2buffer ctypes2numpy_shared data_dir
            data_dir_default error_types get_last_ffi_error integer_types mx_float_p numeric_types
            py_str register_error string_types with_metaclass
        """,
        "context": "Context cpu cpu_pinned current_context gpu gpu_memory_info num_gpus",
        "contrib": """
            amp autograd io nd ndarray onnx quant quantization svrg_optimization sym symbol
            tensorboard text
        """,
        "contrib.onnx": "export_model get_model_metadata import_model import_to_gluon onnx2mx",
        "contrib.quantization": """
            calib_graph combine_histogram quantize_graph quantize_model quantize_model_mkldnn
            quantize_net quantize_net_v2
        """,
        "image": """
            Augmenter BrightnessJitterAug CastAug CenterCropAug ColorJitterAug ColorNormalizeAug
            ContrastJitterAug CreateAugmenter CreateDetAugmenter CreateMultiRandCropAugmenter
            DetAugmenter DetBorrowAug DetHorizontalFlipAug DetRandomCropAug DetRandomPadAug
            DetRandomSelectAug ForceResizeAug HorizontalFlipAug HueJitterAug ImageDetIter ImageIter
            LightingAug RandomCropAug RandomGrayAug RandomOrderAug RandomSizedCropAug ResizeAug
            SaturationJitterAug SequentialAug center_crop color_normalize copyMakeBorder fixed_crop
            imdecode imread imresize imrotate random_crop random_rotate random_size_crop
            resize_short scale_down
        """,
        "initializer": """
            Bilinear Constant FusedRNN InitDesc Initializer LSTMBias Load MSRAPrelu Mixed Normal One
            Orthogonal Uniform Xavier Zero create register
        """,
        "io": """
            CSVIter DataBatch DataDesc DataIter ImageDetRecordIter ImageRecordInt8Iter
            ImageRecordIter ImageRecordIter_v1 ImageRecordUInt8Iter ImageRecordUInt8Iter_v1
            LibSVMIter MNISTIter MXDataIter NDArrayIter PrefetchingIter ResizeIter
        """,
        "kvstore": "KVStore KVStoreBase KVStoreServer create kvstore_server",
        "lr_scheduler": """
            CosineScheduler FactorScheduler LRScheduler MultiFactorScheduler PolyScheduler
        """,
        "metric": """
            Accuracy Caffe CompositeEvalMetric CrossEntropy CustomMetric EvalMetric F1 Loss MAE MCC
            MSE NegativeLogLikelihood PCC PearsonCorrelation Perplexity RMSE TopKAccuracy Torch
            check_label_shapes create np register
        """,
        "model": "BatchEndParam FeedForward load_checkpoint load_params save_checkpoint",
        "onnx": "export_model get_operator_support mx2onnx",
        "optimizer": """
            AdaDelta AdaGrad Adam Adamax DCASGD FTML Ftrl LAMB LARS LBSGD NAG Nadam Optimizer
            RMSProp SGD SGLD Signum Test Updater ccSGD contrib create get_updater register
        """,
        "rnn": """
            BaseConvRNNCell BaseRNNCell BidirectionalCell BucketSentenceIter ConvGRUCell
            ConvLSTMCell ConvRNNCell DropoutCell FusedRNNCell GRUCell LSTMCell ModifierCell RNNCell
            RNNParams ResidualCell SequentialRNNCell ZoneoutCell do_rnn_checkpoint encode_sentences
            load_rnn_checkpoint rnn_unroll save_rnn_checkpoint
        """,
        "test_utils": """
            DummyIter almost_equal assert_allclose assert_almost_equal
            assert_almost_equal_ignore_nan assert_almost_equal_with_err assert_exception assign_each
            assign_each2 checkShapes check_consistency check_gluon_hybridize_consistency
            check_numeric_gradient check_speed check_symbolic_backward check_symbolic_forward
            chi_square_check collapse_sum_like compare_ndarray_tuple compare_optimizer
            create_2d_tensor create_sparse_array create_sparse_array_zd create_vector default_atols
            default_context default_dtype default_numeric_eps default_rtols discard_stderr download
            download_model effective_dtype environment gen_buckets_probs_with_ppf get_atol
            get_bz2_data get_cifar10 get_etol get_identity_mat get_identity_mat_batch
            get_im2rec_path get_mnist get_mnist_iterator get_mnist_pkl get_mnist_ubyte get_rtol
            get_tolerance get_tols get_zip_data has_tvm_ops is_aarch64_run is_cd_run is_op_runnable
            list_gpus locationError mean_check new_matrix_with_real_eigvals_2d
            new_matrix_with_real_eigvals_nd new_orthonormal_matrix_2d
            new_sym_matrix_with_real_eigvals_2d new_sym_matrix_with_real_eigvals_nd np_reduce
            numeric_grad rand_coord_2d rand_ndarray rand_shape_2d rand_shape_3d rand_shape_nd
            rand_sparse_ndarray random_arrays random_sample random_uniform_arrays retry same
            same_array same_symbol_structure set_default_context shuffle_csr_column_indices
            simple_forward var_check verify_generator
        """,
        "util": """
            get_cuda_compute_capability get_gpu_count get_gpu_memory getenv is_np_array is_np_shape
            np_array np_shape np_ufunc_legal_option reset_np set_module set_np set_np_shape setenv
            use_np use_np_array use_np_shape wrap_np_binary_func wrap_np_unary_func
        """,
    }.items()
}

#: Half-private names of modules that programs import; `_half_private` has a file for each module.
HALF_PRIVATE: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "base": "NDArrayHandle _LIB _as_list check_call",
        "executor_manager": "_bind_exec _load_data _load_general _load_label",
        "gluon.block": "_BlockScope _flatten _regroup",
        "gluon.data.dataloader": "ForkingPickler _MultiWorkerIter _as_in_context",
        "gluon.data.dataset": "_DownloadedDataset",
        "gluon.model_zoo.model_store": "_model_sha1",
        "gluon.rnn.rnn_cell": """
            _cells_begin_state _cells_state_info _format_sequence _get_begin_state
            _mask_sequence_variable_length _reverse_sequences
        """,
        "gluon.utils": "_brief_print_list _get_repo_file_url _get_repo_url _indent",
        "image": "_get_interp_method",
        "io": "_getdata_by_idx _has_instance _init_data",
        "model": """
            _create_kvstore _create_sparse_kvstore _initialize_kvstore _update_params
            _update_params_on_kvstore
        """,
        "module.base_module": "_as_list _check_input_names _parse_data_desc",
        "module.executor_group": """
            _load_data _load_general _load_label _merge_multi_context _prepare_group2ctxs
            _split_input_slice
        """,
    }.items()
}

#: Modules of MXNet whose names rsnet has in one place: where a program finds them.
PLACES: dict[str, str] = {
    "contrib.amp.amp": "contrib.amp.training",
    "contrib.ndarray": "ndarray.contrib",
    "contrib.onnx.onnx2mx": "contrib.onnx",
    "contrib.quant": "contrib.quantization",
    "contrib.symbol": "symbol.contrib",
    "gluon.contrib.nn.basic_layers": "gluon.contrib.nn",
    "image.image": "image",
    "io.io": "io",
    "io.utils": "io",
    "kvstore.kvstore": "kvstore",
    "metric.ndarray": "ndarray",
    "ndarray.utils": "ndarray",
    "onnx.mx2onnx": "onnx",
    "optimizer.optimizer": "optimizer",
    "rnn.io": "rnn",
    "rnn.rnn": "rnn",
    "rnn.rnn_cell": "rnn",
}


def why_missing(module: str, name: str) -> str | None:
    """A message if MXNet's `module` has `name`; `None` if MXNet does not have it either."""
    if name not in NAMES.get(module, ()):
        return None
    full = f"mx.{module}.{name}" if module else f"mx.{name}"
    return f"`{full}` is not in rsnet yet (docs/from_mxnet.md lists what is)"


def module_getattr(qualified: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: half-private names, and modules of MXNet that are elsewhere; which
    names are missing.
    """
    package, _, module = qualified.partition(".")

    def missing(name: str) -> Any:
        if name.startswith("__"):  # every `from module import ...` asks for `__path__`
            raise AttributeError(f"module {qualified!r} has no attribute {name!r}")
        if name in HALF_PRIVATE.get(module, ()):
            file = f"{package}._half_private.{module.replace('.', '_')}"
            return getattr(import_on_demand(file), name)
        place = PLACES.get(f"{module}.{name}")
        if place is not None:
            return import_on_demand(f"{package}.{place}")
        why = why_missing(module, name)
        if why is not None:
            raise AttributeError(why, name=name)
        text = f"module {qualified!r} has no attribute {name!r}"
        from ._pytorch_names import hint  # for errors only

        instead = hint(module or "mx", name)
        if instead:
            raise AttributeError(text + instead, name=name)
        # Without `name`, so that the interpreter adds it and looks for similar names.
        raise AttributeError(text)

    return missing


def absent(module: str = "") -> list[str]:
    """Names of MXNet's `module` that rsnet does not have, sorted."""
    package = __package__ or "rsnet"
    found = import_on_demand(f"{package}.{module}" if module else package)
    return sorted(name for name in NAMES[module] if not hasattr(found, name))
