# SPDX-License-Identifier: Apache-2.0
"""A model, its optimizer and the settings that it runs under: what advise() changes and compares."""

import contextlib
import copy
import dataclasses
import inspect
import typing

import torch
from torch import nn

AS_IS = "as it is"  # autocast as the caller has it


def first_tensor(out: typing.Any) -> torch.Tensor:
    """The first tensor of what a model gives."""
    if isinstance(out, torch.Tensor):
        return out
    if isinstance(out, (tuple, list)) and out:
        return first_tensor(out[0])
    if isinstance(out, dict) and out:  # transformers' ModelOutput too
        return first_tensor(next(v for v in out.values() if v is not None))
    raise TypeError(f"advise() compares tensors, the model gave {type(out).__name__}")


def _cast(value: typing.Any, dtype: "torch.dtype | None") -> typing.Any:
    if dtype is not None and isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    return value


def _copied(optimizer: torch.optim.Optimizer, of: nn.Module, to: nn.Module, **options: typing.Any) -> torch.optim.Optimizer:
    """The optimizer of `of`'s parameters for those of `to`, with its state."""
    pairs = {id(old): new for old, new in zip(of.parameters(), to.parameters())}
    groups = []
    for group in optimizer.param_groups:
        parameters = [pairs.get(id(p)) for p in group["params"]]
        if None in parameters:
            raise ValueError("advise() expects an optimizer of the model's own parameters")
        groups.append({**{k: v for k, v in group.items() if k != "params"}, **options, "params": parameters})
    taken = inspect.signature(type(optimizer).__init__).parameters
    kept = {k: v for k, v in optimizer.defaults.items() if k in taken}
    made = type(optimizer)(groups, **{**kept, **options})
    state = copy.deepcopy(optimizer.state_dict())  # loading it would share its tensors
    for group in state["param_groups"]:
        group.update(options)
    made.load_state_dict(state)
    return made


@dataclasses.dataclass
class Work:
    """What is run: a forward pass, or with an optimizer a training step."""

    inputs: "tuple[typing.Any, ...]"
    arguments: "dict[str, typing.Any]"
    loss: "typing.Callable[[typing.Any], torch.Tensor] | None" = None

    def loss_of(self, out: typing.Any) -> torch.Tensor:
        if self.loss is not None:
            return self.loss(out)
        found = getattr(out, "loss", None)
        if not isinstance(found, torch.Tensor):
            raise TypeError("advise() of a training step needs loss=, a function of the model's result; the result has no .loss")
        return found


class Candidate:
    """Of one model. A copy shares nothing with it, but for compiled models."""

    def __init__(self, model: nn.Module, optimizer: "torch.optim.Optimizer | None" = None):
        self.model = model
        self.optimizer = optimizer
        self.num_threads: "int | None" = None
        self.autocast: typing.Any = AS_IS
        self.input_dtype: "torch.dtype | None" = None
        self.compiled: "nn.Module | None" = None  # `model` by torch.compile: of inference, which changes nothing

    def copy(self, **optimizer_options: typing.Any) -> "Candidate":
        model = copy.deepcopy(self.model) if self.compiled is None else self.model
        optimizer = None
        if self.optimizer is not None:
            optimizer = _copied(self.optimizer, self.model, model, **optimizer_options)
        made = Candidate(model, optimizer)
        made.num_threads, made.autocast, made.input_dtype = self.num_threads, self.autocast, self.input_dtype
        made.compiled = self.compiled
        return made

    def by_backend(self) -> "Candidate":
        """A copy that runs by torch.compile with the backend `epilogue`. Its copies share the model and the graphs."""
        made = self.copy()
        made.compiled = torch.compile(made.model, backend="epilogue", dynamic=False)
        return made

    @property
    def result(self) -> nn.Module:
        """The model as it is to be called."""
        return self.model if self.compiled is None else self.compiled

    @property
    def settings(self) -> "dict[str, typing.Any]":
        given: "dict[str, typing.Any]" = {}
        if self.num_threads is not None:
            given["num_threads"] = self.num_threads
        if self.autocast != AS_IS:
            given["autocast"] = None if self.autocast is None else str(self.autocast).removeprefix("torch.")
        if self.input_dtype is not None:
            given["dtype"] = str(self.input_dtype).removeprefix("torch.")
        return given

    @contextlib.contextmanager
    def settings_on(self) -> "typing.Iterator[None]":
        threads = torch.get_num_threads()
        with contextlib.ExitStack() as stack:
            if self.autocast is None:
                stack.enter_context(torch.autocast("cpu", enabled=False))
            elif self.autocast != AS_IS:
                stack.enter_context(torch.autocast("cpu", dtype=self.autocast))
            if self.num_threads is not None and self.num_threads != threads:
                torch.set_num_threads(self.num_threads)
            try:
                yield
            finally:
                if torch.get_num_threads() != threads:
                    torch.set_num_threads(threads)

    def _forward(self, work: Work) -> typing.Any:
        inputs = [_cast(v, self.input_dtype) for v in work.inputs]
        return self.result(*inputs, **{k: _cast(v, self.input_dtype) for k, v in work.arguments.items()})

    def run(self, work: Work) -> torch.Tensor:
        """The result, or the loss of a step that was taken."""
        with self.settings_on():
            if self.optimizer is None:
                with torch.no_grad():
                    return first_tensor(self._forward(work))
            self.optimizer.zero_grad(set_to_none=True)
            loss = work.loss_of(self._forward(work))
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    def outcome(self, work: Work) -> "tuple[torch.Tensor, ...]":
        """What must agree: the result; of a training step the loss, all gradients, and what the step
        added to the parameters. The model and its optimizer stay as they are."""
        with torch.random.fork_rng(devices=[]):  # the caller's numbers go on as they would have
            torch.manual_seed(0)
            return (self.run(work),) if self.optimizer is None else self._trial_step(work)

    def _trial_step(self, work: Work) -> "tuple[torch.Tensor, ...]":
        trial = self.copy()
        parameters = [p for p in trial.model.parameters() if p.requires_grad]
        before = [p.detach().clone() for p in parameters]
        loss = trial.run(work)
        gradients = [p.grad.flatten().double() for p in parameters if p.grad is not None]
        updates = [(p.detach() - b).flatten().double() for p, b in zip(parameters, before)]
        return loss, torch.cat(gradients), torch.cat(updates)
