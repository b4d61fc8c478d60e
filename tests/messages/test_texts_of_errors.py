"""Every text that the package raises says what was expected; those that do not yet are counted."""

import ast
import re
from pathlib import Path

import rsnet as mx

PACKAGE = Path(mx.__file__).parent
# Texts of MXNet that programs parse or search for, and of what there is not.
KEPT = re.compile(
    r"^(Find name|Data provided by|Duplicated parameter names|Too many slices|cannot (read|write))"
    r"|not in rsnet|not supported|has no (attribute|operator)|\bcall .* first\b|no current batch"
    r"|does not define|Can only specify known|compose only accept|is deprecated"
)
# Texts of other forms by file. The numbers fall; a new text says "invalid X v: expected ...".
OTHERS = {
    "_alias.py": 1, "_half_private/base.py": 1, "_half_private/gluon_data_dataset.py": 1,
    "_half_private/model.py": 1, "_history.py": 2, "_operators/attribute_table.py": 5,
    "_operators/attributes.py": 6, "_operators/checks.py": 17, "_operators/custom_op.py": 3,
    "_operators/decorator.py": 6, "_operators/elementwise.py": 2, "_operators/gradient.py": 3,
    "_operators/legacy.py": 1, "_operators/library.py": 2, "_operators/operands.py": 2,
    "_operators/parallel.py": 3, "_operators/property.py": 5, "_operators/property_node.py": 7,
    "_operators/register.py": 2, "_operators/translation.py": 7,
    "_operators/user/arguments.py": 2, "_operators/user/attr.py": 4,
    "_operators/user/condition.py": 6, "_operators/user/contexts.py": 3,
    "_operators/user/definition.py": 10, "_operators/user/gradient.py": 5,
    "_operators/user/inference.py": 2, "_operators/user/registration.py": 18, "_packed_rnn.py": 1,
    "as_mxnet.py": 1, "autograd.py": 3, "build.py": 2, "context.py": 1,
    "contrib/amp/convert.py": 2, "contrib/amp/training.py": 1, "contrib/quantization.py": 3,
    "contrib/text/embedding.py": 2, "cuda/_loader.py": 3, "executor.py": 2,
    "executor_manager.py": 1, "gluon/_summary.py": 1, "gluon/block.py": 7,
    "gluon/contrib/data/text.py": 1, "gluon/contrib/estimator/estimator.py": 1,
    "gluon/contrib/rnn/rnn_cell.py": 1, "gluon/data/_workers.py": 2, "gluon/data/batchify.py": 2,
    "gluon/data/dataloader.py": 2, "gluon/data/dataset.py": 3, "gluon/data/sampler.py": 2,
    "gluon/data/vision/datasets.py": 3, "gluon/data/vision/transforms.py": 2,
    "gluon/hybrid_block.py": 2, "gluon/loss.py": 3, "gluon/model_zoo/model_store.py": 1,
    "gluon/model_zoo/vision/resnet.py": 2, "gluon/model_zoo/vision/vgg.py": 1,
    "gluon/nn/basic_layers.py": 1, "gluon/nn/pooling.py": 1, "gluon/parameter.py": 7,
    "gluon/parameter_dict.py": 8, "gluon/rnn/containers.py": 2, "gluon/rnn/modifiers.py": 1,
    "gluon/rnn/recurrent_cell.py": 3, "gluon/rnn/rnn_layer.py": 1, "gluon/symbol_block.py": 3,
    "gluon/trainer.py": 4, "gluon/utils.py": 1, "image/augmenters.py": 1, "image/detection.py": 1,
    "image/detection_iterator.py": 4, "image/functions.py": 3, "image/iterator.py": 6,
    "initializer/base.py": 1, "initializer/composed.py": 3, "initializer/rules.py": 1,
    "io/base.py": 1, "io/files.py": 5, "io/image_records.py": 1, "kvstore/compression.py": 1,
    "kvstore/store.py": 4, "metric/base.py": 2,
    "metric/classification.py": 2, "misc.py": 1, "module/base_module.py": 1,
    "module/bucketing_module.py": 3, "module/executor_group.py": 3, "module/feedforward.py": 1,
    "module/module.py": 3, "module/python_module.py": 3, "module/sequential_module.py": 1,
    "ndarray/_creation.py": 4, "ndarray/_indexing.py": 8, "ndarray/_io.py": 9,
    "ndarray/_methods.py": 10, "ndarray/_sharing.py": 1, "ndarray/_sparse.py": 1, "ndarray/random.py": 1,
    "notebook/callback.py": 2, "oneflow/builder.py": 9, "oneflow/builtins.py": 2,
    "oneflow/job.py": 7, "oneflow/optimizer.py": 1, "oneflow/recipes.py": 2,
    "oneflow/variable.py": 2, "optimizer/base.py": 4, "parameter.py": 2, "profiler/marks.py": 2,
    "profiler/session.py": 1, "recordio.py": 7, "rnn/base_cell.py": 1, "rnn/containers.py": 3,
    "rnn/fused_cell.py": 1, "rnn/modifiers.py": 1, "rnn/sentences.py": 2,
    "sbp.py": 8, "symbol/__init__.py": 1, "symbol/_control_flow.py": 1,
    "symbol/bind_arguments.py": 2, "symbol/random.py": 1, "symbol/register.py": 1,
    "symbol/symbol.py": 2, "test_utils/check.py": 2, "test_utils/compare.py": 4,
    "test_utils/data.py": 2, "test_utils/digits.py": 1, "test_utils/programs.py": 1,
    "tools/im2rec.py": 3, "visualization.py": 2,
}  # fmt: skip


def literal(node):
    """The text of an expression, with {} for what is computed; None if it is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = literal(node.left), literal(node.right)
        return None if parts == (None, None) else "".join(part or "{}" for part in parts)
    return None


def raised(source):
    """The texts that `raise` statements of a module make themselves, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            texts = [literal(argument) for argument in node.exc.args]
            sentences = [text for text in texts if text and " " in text]
            if sentences and not any("expected" in text for text in sentences):
                yield node.lineno, sentences[0]


def test_raised_texts_say_what_was_expected():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        others = [text for _, text in raised(path.read_text()) if not KEPT.search(text)]
        if others:
            found[path.relative_to(PACKAGE).as_posix()] = others
    more = {file: texts for file, texts in found.items() if len(texts) > OTHERS.get(file, 0)}
    assert not more, 'write "invalid X v: expected ..."'
    fewer = {
        file: len(found.get(file, ())) for file, n in OTHERS.items() if len(found.get(file, ())) < n
    }
    assert not fewer, "lower the numbers of OTHERS to these, and take out those that are 0"


def test_what_is_raised_is_found():
    source = """
def f(x):
    if x:
        raise ValueError(f"{x} is " "wrong")
    raise TypeError("invalid x: expected " + names)
    raise fail(x, "too long " + x)
"""
    assert sorted(raised(source)) == [(4, "{} is wrong"), (6, "too long {}")]
