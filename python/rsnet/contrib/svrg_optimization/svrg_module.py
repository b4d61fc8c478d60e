"""`SVRGModule`: a module whose gradients have less variance.

Source: Johnson and Zhang, Accelerating stochastic gradient descent using predictive variance
reduction, NIPS 2013.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...module import Module
from ...ndarray import NDArray

__all__ = ["SVRGModule"]


class SVRGModule(Module):
    r"""A module that corrects the gradient of every batch by one over all data.

    Every `update_freq` epochs the parameters :math:`w` are kept as :math:`\tilde w`, and the mean
    :math:`\mu` of the gradients of all batches at :math:`\tilde w` is computed. A step then uses

    .. math:: g(w) - g(\tilde w) + \mu

    where :math:`g` are gradients of the batch, which costs one more pass for every batch.

    Parameters
    ----------
    symbol, data_names, label_names, logger, context, work_load_list, fixed_param_names
        See `rsnet.mod.Module`.
    state_names, group2ctxs, compression_params
        See `rsnet.mod.Module`.
    update_freq : int
        Epochs from one gradient over all data to the next.

    Raises
    ------
    TypeError
        `update_freq` is not an integer.
    ValueError
        It is below 1.

    Examples
    --------
    >>> import numpy as np, rsnet as mx
    >>> from rsnet.contrib.svrg_optimization.svrg_module import SVRGModule
    >>> x = np.random.default_rng(0).uniform(-1, 1, (64, 4)).astype("float32")
    >>> mx.random.seed(0)
    >>> batches = mx.io.NDArrayIter(x, x.sum(axis=1), batch_size=16, label_name="lin_label")
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1)
    >>> net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("lin_label"))
    >>> mod = SVRGModule(net, label_names=["lin_label"], update_freq=2)
    >>> mod.fit(batches, eval_metric="mse", num_epoch=20, optimizer_params={"learning_rate": 0.2})
    >>> mod.score(batches, "mse")[0][1] < 1e-3
    True
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
        update_freq: int | None = None,
    ) -> None:
        options: Any = (
            symbol, data_names, label_names, logger, context, work_load_list, fixed_param_names,
            state_names, group2ctxs, compression_params,
        )  # fmt: skip
        super().__init__(*options)
        if not isinstance(update_freq, int):
            raise TypeError(f"invalid update_freq {update_freq!r}: expected a number of epochs")
        if update_freq < 1:
            raise ValueError(f"invalid update_freq {update_freq}: expected at least 1")
        self.update_freq = update_freq
        # Computes gradients at the parameters that were kept.
        self._mod_aux = Module(*options)
        # By parameter and device; None until they were computed, and for fixed parameters.
        self._full_grads: list[list[NDArray | None]] | None = None

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
        memory_limit: int | str | None = None,
    ) -> None:
        """Binds the module and its twin for the parameters that are kept, each within the limit."""
        super().bind(
            data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind,
            shared_module, grad_req, memory_limit,
        )  # fmt: skip
        if for_training:
            self._mod_aux.bind(
                data_shapes, label_shapes, force_rebind=force_rebind, grad_req=grad_req,
                memory_limit=memory_limit,
            )  # fmt: skip

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Binds both again for other shapes."""
        super().reshape(data_shapes, label_shapes)
        if self._mod_aux.binded:
            self._mod_aux.reshape(data_shapes, label_shapes)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Computes outputs; in training also with the parameters that were kept."""
        super().forward(data_batch, is_train)
        if self._corrects(is_train):
            self._mod_aux.forward(data_batch, is_train=True)

    def backward(self, out_grads: Any = None) -> None:
        """Computes gradients; in training also at the parameters that were kept."""
        super().backward(out_grads)
        if self._corrects(None):
            self._mod_aux.backward(out_grads)

    def _corrects(self, is_train: bool | None) -> bool:
        train = self.for_training if is_train is None else is_train
        return bool(train) and self._full_grads is not None

    def update(self) -> None:
        """Corrects the gradients and updates the parameters."""
        if self._full_grads is not None:
            self._correct()
        super().update()

    def _correct(self) -> None:
        group, kept = self._exec_group, self._mod_aux._exec_group
        assert group is not None and kept is not None and self._full_grads is not None
        for grads, old, means in zip(
            group.grad_arrays, kept.grad_arrays, self._full_grads, strict=True
        ):
            for grad, one, mean in zip(grads, old, means, strict=True):
                if grad is not None and one is not None and mean is not None:
                    grad[:] = grad - one + mean

    def update_full_grads(self, train_data: Any) -> None:
        """Keeps the parameters, and computes the mean of the gradients of all batches at them.

        Parameters
        ----------
        train_data : DataIter
            It is reset before and after.
        """
        aux = self._mod_aux
        aux.init_params(force_init=True, initializer=None, **self._kept_params())
        group = aux._exec_group
        assert group is not None
        sums: list[list[NDArray | None]] = []
        count = 0
        train_data.reset()
        for batch in train_data:
            aux.forward(batch, is_train=True)
            aux.backward()
            if not count:
                sums = [[g if g is None else g.copy() for g in row] for row in group.grad_arrays]
            else:
                for row, grads in zip(sums, group.grad_arrays, strict=True):
                    for total, grad in zip(row, grads, strict=True):
                        if total is not None:
                            total += grad
            count += 1
        train_data.reset()
        if count:
            self._full_grads = [[g if g is None else g / count for g in row] for row in sums]

    def _kept_params(self) -> dict[str, Any]:
        arg_params, aux_params = self.get_params()
        return {"arg_params": arg_params, "aux_params": aux_params}

    def _train_epoch(
        self,
        train_data: Any,
        metric: Any,
        epoch: int,
        callbacks: Callable[..., Any] | Sequence[Callable[..., Any]] | None,
        monitor: Any,
        shown: Any,
        more: dict[str, Any],
    ) -> list[tuple[str, float]]:
        if epoch % self.update_freq == 0:
            self.update_full_grads(train_data)
        return super()._train_epoch(train_data, metric, epoch, callbacks, monitor, shown, more)

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Prepares both for a batch."""
        super().prepare(data_batch, sparse_row_id_fn)
        if self._mod_aux.binded:
            self._mod_aux.prepare(data_batch, sparse_row_id_fn)
