# SPDX-License-Identifier: Apache-2.0
"""The reads of a forward that was recorded, beside its arguments. Forwards of transformers' own alone are recorded: what others do beside
calling children (write, count, draw numbers) no record would show."""

import inspect
import os
import sys
import types
import typing

from torch import nn

from . import linear_state, norm_state
from .layer import hooks_of
from .nodes import PASSIVE
from .patterns import NoMatch
from .rotary import Read

STATE = "_epilogue_decoded"  # of a module of attention: decoded.py's
ABSENT = object()  # in the place of a Read's value: the name is not there


class Reads(typing.NamedTuple):
    values: "tuple[Read, ...]" = ()
    functions: "tuple[tuple[type, str, typing.Any], ...]" = ()  # of classes
    lengths: "tuple[tuple[dict[str, typing.Any], int], ...]" = ()  # attributes that come later may be read too
    kinds: "tuple[tuple[nn.Module, type], ...]" = ()  # of children
    hooks: "tuple[typing.Any, ...]" = ()  # of children: dictionaries

    def hold(self) -> bool:
        """Whether all is as it was, hooks aside."""
        for space, name, value in self.values:
            if space.get(name, ABSENT) is not value:
                return False
        for space, length in self.lengths:
            if len(space) != length:
                return False
        for child, kind in self.kinds:
            if type(child) is not kind:
                return False
        return all(getattr(kind, name, None) is function for kind, name, function in self.functions)

    def joined(self, *others: "Reads") -> "Reads":
        made = Reads(*(sum((getattr(r, field) for r in others), getattr(self, field)) for field in Reads._fields))
        return made._replace(values=tuple({(id(space), name): (space, name, value) for space, name, value in made.values}.values()))


def is_fused_as_it_was(module: nn.Module) -> bool:
    """Whether its class is the one that fuse() gave it, and no class derived of that."""
    return "_epilogue_original" in vars(type(module))


def _folder() -> str:
    return os.path.dirname(sys.modules["transformers"].__file__ or "") + os.sep


def _names_in(code: types.CodeType) -> "set[str]":
    """All that it may ask an object for."""
    consts = [c for const in code.co_consts for c in (const if isinstance(const, tuple) else (const,))]
    texts = {text for text in consts if isinstance(text, str) and text.isidentifier()}
    return {*code.co_names, *texts, *(name for inner in code.co_consts if isinstance(inner, types.CodeType) for name in _names_in(inner))}


def is_code_of_library(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_folder())


def is_of_library(function: typing.Any) -> bool:
    return isinstance(function, types.FunctionType) and is_code_of_library(function.__code__)


def _function_of(own: typing.Any) -> types.FunctionType:
    """Without transformers' own decorators. Raises NoMatch if it is not transformers' own."""
    while True:
        if not is_of_library(own):
            raise NoMatch("forward() is not transformers' own")
        inner = vars(own).get("__wrapped__")
        if inner is None:
            break
        own = inner
    if own.__code__.co_freevars or "super" in own.__code__.co_names:
        raise NoMatch("forward() calls another class's, or reads what surrounds it")
    return own


def reads_of(module: nn.Module, own: typing.Any) -> Reads:
    """All that the forward, and the methods and functions of its file that it names, name of the module, its configuration and its file.
    Raises NoMatch with the reason."""
    kind = getattr(type(module), "_epilogue_original", type(module))
    names: "set[str]" = set()
    values: "list[Read]" = []
    functions: "list[tuple[type, str, typing.Any]]" = []
    todo, seen = [_function_of(own)], set()
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        for name in _names_in(function.__code__):
            names.add(name)
            method = getattr(kind, name, None)
            if isinstance(method, types.FunctionType) and name not in vars(nn.Module):
                functions.append((kind, name, method))
                todo.append(_function_of(method))
            space = function.__globals__
            if name in space:
                value = space[name]
                values.append((space, name, value))
                is_of_file = isinstance(value, types.FunctionType) and value.__module__ == kind.__module__
                if is_of_file and not hasattr(value, "_epilogue_own"):
                    todo.append(inspect.unwrap(value))
    for tensors in (module._parameters, module._buffers):  # whether they are there is all that a record reads of them
        values += [(tensors, name, x) for name, x in tensors.items() if name in names]
    values += [(module.__dict__, name, value) for name, value in module.__dict__.items() if name in names]
    values += [(module._modules, name, child) for name, child in module._modules.items()]
    values += _reads_of_config(module, names)
    values.append((module.__dict__, "training", False))
    lengths = [(space, len(space)) for space in (module.__dict__, module._modules, module._parameters, module._buffers)]
    return Reads(tuple(values), tuple(functions), tuple(lengths))


def reads_of_children(children: "typing.Iterable[nn.Module]") -> Reads:
    """All that says that these are called as they were. Raises NoMatch with the reason."""
    children = list(children)
    values: "list[Read]" = []
    functions: "list[tuple[type, str, typing.Any]]" = []
    for child in children:
        values += [(child.__dict__, "forward", ABSENT), (child.__dict__, "_compiled_call_impl", ABSENT)]
        if type(child) in PASSIVE:
            values.append((child.__dict__, "training", False))
        if not is_fused_as_it_was(child):  # dropout, a layer norm
            forward = type(child).forward
            if not forward.__module__.startswith("torch.nn."):
                raise NoMatch(f"the forward of {type(child).__name__} is not PyTorch's")
            functions.append((type(child), "forward", forward))
        values += [(child.__dict__, s, child.__dict__[s]) for s in (linear_state.STATE, norm_state.STATE, STATE) if s in child.__dict__]
    hooks = tuple(h for child in children for h in hooks_of(child))
    return Reads(tuple(values), tuple(functions), kinds=tuple((c, type(c)) for c in children), hooks=hooks)


def _reads_of_config(module: nn.Module, names: "set[str]") -> "list[Read]":
    config = module.__dict__.get("config")
    found: "list[Read]" = []
    for name in names if config is not None else ():
        if name in config.__dict__:
            found.append((config.__dict__, name, config.__dict__[name]))
        elif isinstance(getattr(type(config), name, None), property) and name != "_attn_implementation":
            raise NoMatch(f"it reads {name} of its configuration")
    return found


def reads_of_library(module: nn.Module, name: str, cache: type) -> "tuple[Reads, typing.Any]":
    """All that says that the module calls the function of attention of that name, and that a cache's update is transformers' own; and the
    function. Raises NoMatch if it is not the one that fuse() put there."""
    implementation = "_attn_implementation_internal"
    config = getattr(module.__dict__.get("config"), "__dict__", {})
    if config.get(implementation) != name:
        raise NoMatch(f"its function of attention is not named {name}")
    interface = getattr(sys.modules["transformers.modeling_utils"], "ALL_ATTENTION_FUNCTIONS", None)
    local, shared = (getattr(interface, space, None) for space in ("_local_mapping", "_global_mapping"))
    if not isinstance(local, dict) or not isinstance(shared, dict):
        raise NoMatch("this transformers keeps its functions of attention in another way")
    attend = shared.get(name)
    if not hasattr(attend, "_epilogue_own"):
        raise NoMatch("the function of attention is another one")
    kind = type(interface)
    functions = [(cache, "update", cache.update)]  # and the look-ups of transformers 5 and 4
    functions += [(kind, look_up, getattr(kind, look_up)) for look_up in ("get_interface", "__getitem__") if hasattr(kind, look_up)]
    if not all(is_of_library(function) for _, _, function in functions):
        raise NoMatch("a cache's update, or the look-up of attention's function, is not transformers' own")
    values = ((config, implementation, config[implementation]), (local, name, ABSENT), (shared, name, attend))
    return Reads(values, tuple(functions)), attend
