"""Data parallelism: one executor per device, each with its slice of every batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .. import ndarray as nd
from ..base import shown
from ..context import Context
from ..executor import Executor
from ..io import DataDesc
from ..ndarray import NDArray
from .batch_rows import batch_axis, batch_size_of, concatenated, split_batch

__all__ = ["DataParallelExecutorGroup", "split_batch"]


class DataParallelExecutorGroup:
    """Executors of one symbol on several devices that share each batch.

    Parameters
    ----------
    symbol : Symbol
    contexts : list of Context
    workload : list of float
        Share of each device.
    data_shapes, label_shapes : list of DataDesc
    param_names : list of str
        Arguments that are parameters.
    for_training, inputs_need_grad : bool
    shared_group : DataParallelExecutorGroup, optional
        Group whose parameters and memory are shared.
    logger : Logger
    fixed_param_names, state_names : list of str, optional
        Parameters without gradient; arguments that are carried from batch to batch.
    grad_req : str, list or dict
        Requests of the gradients.
    group2ctxs : list of dict, optional
        For each device, which device a `ctx_group` runs on.
    memory_limit : int or str, optional
        Of each executor, see `Symbol.simple_bind`.
    """

    def __init__(
        self,
        symbol: Any,
        contexts: list[Context],
        workload: Sequence[float] | None,
        data_shapes: list[DataDesc],
        label_shapes: list[DataDesc] | None,
        param_names: list[str],
        for_training: bool,
        inputs_need_grad: bool,
        shared_group: DataParallelExecutorGroup | None = None,
        logger: Any = logging,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: Any = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        memory_limit: int | str | None = None,
    ) -> None:
        self.symbol = symbol
        self.logger = logger
        self.contexts = contexts
        self.workload = list(workload or [1] * len(contexts))
        self.param_names = param_names
        self.fixed_param_names = list(fixed_param_names or [])
        self.state_names = list(state_names or [])
        self.for_training = for_training
        self.inputs_need_grad = inputs_need_grad
        self.arg_names = symbol.list_arguments()
        self.aux_names = symbol.list_auxiliary_states()
        self.output_names = symbol.list_outputs()
        self._group2ctxs = _groups_of_devices(group2ctxs, len(contexts))
        self._grad_req, self._memory_limit = grad_req, memory_limit
        # Data arrays by name and device, shared by all executors that are bound after each other.
        self.shared_data_arrays: list[dict[str, NDArray]] = (
            [{} for _ in contexts] if shared_group is None else shared_group.shared_data_arrays
        )
        self.execs: list[Executor] = []
        self._monitor: Any = None
        self.bind_exec(data_shapes, label_shapes, shared_group)

    # ---- binding -------------------------------------------------------------------------------

    def _requests(self, data_names: list[str]) -> dict[str, str]:
        """The request of every argument's gradient."""
        given = self._grad_req
        if isinstance(given, (list, tuple)):
            if len(given) != len(self.arg_names):
                raise ValueError(
                    f"grad_req has {len(given)} entries, "
                    f"expected {len(self.arg_names)}: one per argument"
                )
            given = dict(zip(self.arg_names, given, strict=True))
        elif not isinstance(given, (str, dict)):
            raise ValueError(
                f"invalid grad_req {shown(given)}: expected a string, a list or a dict"
            )
        default = given if isinstance(given, str) else "write"
        reqs = {}
        for name in self.arg_names:
            if not self.for_training:
                reqs[name] = "null"
            elif name in self.param_names:
                reqs[name] = "null" if name in self.fixed_param_names else default
            elif name in data_names:
                reqs[name] = default if self.inputs_need_grad else "null"
            else:
                reqs[name] = "null"
        if isinstance(given, dict) and self.for_training:
            reqs.update(given)
        return reqs

    def bind_exec(
        self,
        data_shapes: list[DataDesc],
        label_shapes: list[DataDesc] | None,
        shared_group: DataParallelExecutorGroup | None = None,
        reshape: bool = False,
    ) -> None:
        """Binds an executor on every device; with `reshape` over the memory of those before."""
        shared_group = self if reshape else shared_group
        self.data_shapes, self.label_shapes = data_shapes, label_shapes
        # The batch axis of each array.
        self.data_layouts = self.decide_slices(data_shapes)
        self.label_layouts = None if label_shapes is None else [batch_axis(d) for d in label_shapes]
        self.data_names = [d.name for d in data_shapes]
        self.label_names = [d.name for d in label_shapes or []]
        self.output_layouts = self._output_axes()
        reqs = self._requests(self.data_names)
        self.execs = [self._bind_on(i, reqs, shared_group) for i in range(len(self.contexts))]

    def decide_slices(self, data_shapes: list[DataDesc]) -> list[int]:
        """Divides the rows of a batch among the devices; returns the batch axis of each array."""
        self.batch_size = batch_size_of(data_shapes)
        self.slices = split_batch(self.batch_size, self.workload)
        return [batch_axis(desc) for desc in data_shapes]

    @property
    def planned_bytes(self) -> int:
        """What the executors of all devices need for their intermediate results."""
        return sum(exe.memory_plan().arena_bytes for exe in self.execs)

    _total_exec_bytes = planned_bytes  # MXNet's name

    def release(self) -> None:
        """Gives the executors up, until `bind_again`; other groups keep the parameters."""
        self._stop_watching(self.execs)
        self.execs = []

    def bind_again(self, shared_group: DataParallelExecutorGroup) -> None:
        """Binds executors over the parameters and the memory of another group."""
        self.bind_exec(self.data_shapes, self.label_shapes, shared_group)
        self._watch()

    def _bind_on(self, i: int, reqs: dict[str, str], shared_group: Any) -> Executor:
        shared: Any = None if shared_group is None else shared_group.execs[i]
        known = [
            *self.data_shapes,
            *(d for d in self.label_shapes or [] if d.name in self.arg_names),
        ]
        shapes = {d.name: self._shape_on(d, i) for d in known}
        types = {d.name: d.dtype for d in known if isinstance(d, DataDesc)}
        for name in self.arg_names if shared is not None else ():
            if name in self.param_names and name in shared.arg_dict:
                types[name] = shared.arg_dict[name].dtype
        executor: Executor = self.symbol.simple_bind(
            ctx=self.contexts[i],
            grad_req=reqs,
            type_dict=types,
            group2ctx=self._group2ctxs[i],
            shared_arg_names=self.param_names,
            shared_exec=shared,
            shared_buffer=self.shared_data_arrays[i],
            memory_limit=self._memory_limit,
            **shapes,
        )
        return executor

    def _shape_on(self, desc: DataDesc, i: int) -> tuple[int, ...]:
        """The shape of one input on device `i`."""
        axis = batch_axis(desc)
        shape = list(desc.shape)
        if axis >= 0 and shape:
            shape[axis] = self.slices[i].stop - self.slices[i].start
        return tuple(shape)

    def _output_axes(self) -> list[int]:
        """The batch axis of every output, from its attribute `__layout__`."""
        axes = []
        for output in self.symbol:
            layout = output.attr("__layout__")
            axes.append(0 if layout is None else DataDesc.get_batch_axis(layout))
        return axes

    def reshape(self, data_shapes: list[DataDesc], label_shapes: list[DataDesc] | None) -> None:
        """Binds again for other shapes, over the same parameters and memory."""
        if data_shapes == self.data_shapes and label_shapes == self.label_shapes:
            return
        before = dict(vars(self))
        try:
            self.bind_exec(data_shapes, label_shapes, reshape=True)
        except Exception:
            vars(self).update(before)  # still bound for the shapes of before
            raise
        self._stop_watching(before["execs"])
        self._watch()

    # ---- parameters ----------------------------------------------------------------------------

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """The arrays of each parameter, one per device."""
        return self._by_device("arg_dict", self.param_names)

    @property
    def grad_arrays(self) -> list[list[NDArray | None]]:
        """The gradients of each parameter, one per device."""
        return self._by_device("grad_dict", self.param_names)

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """The arrays of each auxiliary state, one per device."""
        return self._by_device("aux_dict", self.aux_names)

    @property
    def data_arrays(self) -> list[list[tuple[slice, NDArray]]]:
        """The inputs of each data array on each device, with their rows of the batch."""
        return self._with_rows(self.data_names)

    @property
    def label_arrays(self) -> list[list[tuple[slice, NDArray]]] | None:
        """As `data_arrays`, of the labels that the symbol takes; None if there are none."""
        return None if self.label_shapes is None else self._with_rows(self.label_names)

    def _with_rows(self, names: list[str]) -> list[list[tuple[slice, NDArray]]]:
        blocks = self._by_device("arg_dict", names)
        return [list(zip(self.slices, block, strict=True)) for block in blocks]

    @property
    def input_grad_arrays(self) -> list[list[NDArray | None]]:
        """The gradients of each data array, one per device."""
        return self._by_device("grad_dict", self.data_names) if self.inputs_need_grad else []

    def _by_device(self, arrays: str, names: list[str]) -> list[list[Any]]:
        tables = [getattr(exe, arrays) for exe in self.execs]
        return [[table[name] for table in tables] for name in names if name in tables[0]]

    def set_params(
        self,
        arg_params: dict[str, NDArray],
        aux_params: dict[str, NDArray],
        allow_extra: bool = False,
    ) -> None:
        """Copies values to the parameters of every device."""
        for exe in self.execs:
            exe.copy_params_from(arg_params, aux_params, allow_extra_params=allow_extra)

    def get_params(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Fills the given dicts with the mean over devices of every parameter."""
        for names, blocks, into in (
            (self.param_names, self.param_arrays, arg_params),
            (self.aux_names, self.aux_arrays, aux_params),
        ):
            for name, block in zip(names, blocks, strict=True):
                mean = block[0]
                if len(block) > 1:
                    parts = [b.as_in_context(block[0].context) for b in block]
                    mean = nd.add_n(*parts) / len(parts)
                into[name] = mean.astype(
                    into[name].dtype if name in into else mean.dtype, copy=True
                )

    # ---- running -------------------------------------------------------------------------------

    def _described(self, batch: Any) -> list[tuple[DataDesc, NDArray]]:
        """The data and the labels of a batch that the symbol takes."""
        labels = batch.label if self.label_shapes is not None and batch.label is not None else []
        descs = [*self.data_shapes, *(self.label_shapes or [])[: len(labels)]]
        if len(batch.data) != len(self.data_shapes):
            raise ValueError(
                f"the batch has {len(batch.data)} data arrays, "
                f"expected {len(self.data_shapes)}: {self.data_names}"
            )
        pairs = zip(descs, [*batch.data, *labels], strict=False)
        return [(desc, array) for desc, array in pairs if desc.name in self.arg_names]

    def _inputs(self, batch: Any) -> list[dict[str, NDArray]]:
        """The inputs of each executor: its rows of the data and of the labels."""
        pairs = self._described(batch)
        return [
            {desc.name: self._rows(array, batch_axis(desc), i) for desc, array in pairs}
            for i in range(len(self.execs))
        ]

    def _rows(self, array: NDArray, axis: int, i: int) -> NDArray:
        """The rows of device `i`: all of them if the array has no axis of the batch."""
        if len(self.slices) == 1 or axis < 0:
            return array
        rows = self.slices[i]
        part: NDArray = nd.slice_axis(array, axis=axis, begin=rows.start, end=rows.stop)
        return part

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Runs every executor on its rows of the batch."""
        train = self.for_training if is_train is None else is_train
        if isinstance(data_batch, list):  # one batch per device
            if len(data_batch) != len(self.execs):
                raise ValueError(
                    f"invalid number of batches {len(data_batch)}: expected {len(self.execs)}, one "
                    "for each device"
                )
            inputs = [
                {desc.name: array for desc, array in self._described(one)} for one in data_batch
            ]
        else:
            inputs = self._inputs(data_batch)
        for exe, given in zip(self.execs, inputs, strict=True):
            exe.forward(is_train=train, **given)

    def backward(self, out_grads: Any = None) -> None:
        """Runs the backward pass of every executor.

        Raises
        ------
        AssertionError
            The group was bound for inference.
        """
        if not self.for_training:
            raise AssertionError("backward: expected a module bound with for_training=True")
        grads = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads or [])
        for i, exe in enumerate(self.execs):
            parts = [
                self._rows(grad, axis, i).as_in_context(self.contexts[i])
                for grad, axis in zip(grads, self.output_layouts, strict=False)
            ]
            exe.backward(parts or None)

    # ---- results -------------------------------------------------------------------------------

    def get_outputs(
        self, merge_multi_context: bool = True, begin: int = 0, end: int | None = None
    ) -> list[Any]:
        """The outputs from number `begin` to before `end`, of all devices together or as a list
        for each output.
        """
        by_output = [
            list(parts) for parts in zip(*(exe.outputs for exe in self.execs), strict=True)
        ][begin:end]
        if not merge_multi_context:
            return by_output
        axes = self.output_layouts[begin:end]
        return [concatenated(p, axis) for p, axis in zip(by_output, axes, strict=True)]

    def get_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the outputs for the whole batch."""
        shapes = []
        for name, axis, output in zip(
            self.output_names, self.output_layouts, self.execs[0].outputs, strict=True
        ):
            shape = list(output.shape)
            if axis >= 0 and shape and len(self.execs) > 1:
                shape[axis] = self.batch_size
            shapes.append((name, tuple(shape)))
        return shapes

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients of the data, of all devices together or as a list for each array."""
        if not self.inputs_need_grad:
            raise AssertionError(
                "get_input_grads: expected a module bound with inputs_need_grad=True"
            )
        if not merge_multi_context:
            return self.input_grad_arrays
        axes = [batch_axis(d) for d in self.data_shapes]
        return [concatenated(p, a) for p, a in zip(self.input_grad_arrays, axes, strict=True)]

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arguments that are carried from batch to batch."""
        blocks = self._by_device("arg_dict", self.state_names)
        return [concatenated(b, 0) for b in blocks] if merge_multi_context else blocks

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the arguments that are carried from batch to batch, to arrays or to one number."""
        if states is not None and value is not None:
            raise ValueError("set_states: expected states or value, got both")
        for j, block in enumerate(self._by_device("arg_dict", self.state_names)):
            for i, array in enumerate(block):
                if states is None:
                    array[:] = value
                elif isinstance(states[j], (list, tuple)):
                    array[:] = states[j][i]
                else:
                    array[:] = states[j] if len(block) == 1 else states[j][self.slices[i]]

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs of every device and the labels of its rows."""
        labels = labels or []
        for i, exe in enumerate(self.execs):
            if pre_sliced:
                mine = labels[i]
            else:
                axes = [batch_axis(d) for d in self.label_shapes or []]
                axes += [0] * (len(labels) - len(axes))
                mine = [self._rows(x, a, i) for x, a in zip(labels, axes, strict=False)]
            names = self.label_names or [f"label{j}" for j in range(len(mine))]
            eval_metric.update_dict(
                dict(zip(names, mine, strict=False)),
                dict(zip(self.output_names, exe.outputs, strict=True)),
            )

    def install_monitor(self, mon: Any) -> None:
        """Lets a monitor watch every executor, also those that are bound later."""
        self._monitor = mon
        self._watch()

    def _watch(self) -> None:
        if self._monitor is not None:
            for exe in self.execs:
                self._monitor.install(exe)

    def _stop_watching(self, given_up: list[Executor]) -> None:
        """Takes executors out of the monitor's list, which would keep their memory."""
        if hasattr(self._monitor, "exes"):
            self._monitor.exes = [exe for exe in self._monitor.exes if exe not in given_up]


def _groups_of_devices(group2ctxs: Any, count: int) -> list[Any]:
    """`group2ctx` for each device, from one dict (its values may be lists) or one per device."""
    if group2ctxs is None:
        return [None] * count
    if isinstance(group2ctxs, dict):
        found: list[dict[str, Any]] = [{} for _ in range(count)]
        for group, ctxs in group2ctxs.items():
            many = list(ctxs) if isinstance(ctxs, (list, tuple)) else [ctxs]
            many = many * count if len(many) == 1 else many
            if len(many) != count:
                raise ValueError(
                    f"group2ctxs has {len(many)} contexts for group '{group}', expected {count}"
                )
            for table, ctx in zip(found, many, strict=True):
                table[group] = ctx
        return found
    if len(group2ctxs) != count:
        raise ValueError(
            f"group2ctxs has {len(group2ctxs)} entries, expected {count}: one per context"
        )
    return list(group2ctxs)
