# SPDX-License-Identifier: Apache-2.0
"""fuse(), unfuse(), refresh() and why()."""

import inspect
import typing

from torch import nn

from . import decoded, decoded_layer, embedding_state, experts_state, inline, linear_state, norm_state, prepared, sharded
from .bits import bits_of, options_of
from .cache import fuse_caches, grown_caches, unfuse_caches
from .fused_class import STATE, fused_class, unfused_class
from .layer import Call, hooks_of, is_layer, match_inline, match_layer
from .match import Plan, candidate_method, match
from .packed import rounded_of
from .patterns import NoMatch
from .released import Store, folder_of, releasable
from .report import Report, Row
from .rotary import rotary_calls
from .sdpa import attention_calls, fuse_attention, unfuse_attention
from .shares import shares_of
from .state import Options, State
from .unmatched import unmatched


def _is_fused(module: nn.Module) -> bool:
    """As an MLP, or the layer around one."""
    return hasattr(type(module), "_epilogue_method")


def _of_mlps(model: nn.Module) -> "set[nn.Module]":
    """The linear layers of fused MLPs."""
    fused = [m for m in model.modules() if _is_fused(m)]
    return {m.get_submodule(path) for m in fused for path in m.__dict__[STATE].plan.linears}


def _norms_of_mlps(model: nn.Module) -> "set[nn.Module]":
    """But for those with a hook (SequenceParallel's): the layers around them run as their own."""
    plans = [(m, m.__dict__[STATE].plan) for m in model.modules() if _is_fused(m)]
    found = {m.get_submodule(path) for m, plan in plans for path in (plan.pre_norm, plan.post_norm) if path is not None}
    return {norm for norm in found if not any(hooks_of(norm))}


def _plan_of(module: nn.Module) -> "tuple[str, Plan] | NoMatch | None":
    method = candidate_method(module)
    if method is None:
        return None
    if method in module.__dict__:
        return NoMatch(f"{method} is set on the instance (hooks of another library)")
    if not all(type(p) is nn.Parameter or rounded_of(p) is not None or sharded.is_dtensor(p) for p in module.parameters()):
        return NoMatch("parameters of a type of their own (DTensor, quantised, ...)")
    try:
        plan = match(module, method)
    except NoMatch as reason:
        # What takes several inputs (attention) and is no MLP needs no line in why().
        several = len(inspect.signature(getattr(type(module), method)).parameters) > 2
        return None if several and method == "forward" else reason
    return None if _is_childs(module, plan) else (method, plan)


def _is_childs(module: nn.Module, plan: Plan) -> bool:
    """Whether the method does no more than call a child that is an MLP by itself, as XLNet's layer."""
    parents = {path.rpartition(".")[0] for path in plan.linears}
    if len(parents) != 1 or "" in parents:
        return False
    child = module.get_submodule(parents.pop())
    return _is_fused(child) or isinstance(_plan_of(child), tuple)


def _fuse_around(
    module: nn.Module, options: Options, match_forward: "typing.Callable[[nn.Module], tuple[Plan, Call]]"
) -> "str | None":
    """Makes an MLP run fused in the module's forward, or says why not."""
    if "forward" in module.__dict__:
        return "forward is set on the instance of the layer (hooks of another library)"
    try:
        plan, call = match_forward(module)
    except NoMatch as reason:
        return str(reason)
    module.__dict__[STATE] = State(plan, options, call)
    module.__class__ = fused_class(type(module), "forward", plan.pre_norm, plan.inline)
    return None


def fuse(
    model: nn.Module, *, weights: "str | None" = None, activations: "str | None" = None, group: int = 128,
    zero_points: bool = False, int8_weights: bool = False, training: "bool | str" = False, tune: str = "model",
    linears: "bool | str" = True, memory: "int | None" = None, release: "bool | str" = False,
    caches: bool = True, attention: bool = True,
) -> nn.Module:  # fmt: skip
    """Makes the MLPs, the experts and the linear layers of `model` run fused, in place, and returns it.

    Parameters, names of the state and hooks stay as they are, but for hooks of sequence parallelism
    (docs/distributed.md), which unfuse() puts back; a call that the engine cannot make
    runs the module's own forward (see why()). Only inference is fused unless `training`.

    weights: "int8" (one scale per output channel) or "int4" (one per output channel and `group` of
        inputs, 32 or 128, with a zero point where `zero_points`) for the packed copies of MLPs, linear layers and
        experts; changes results, at any number of rows. The parameters and the state_dict keep theirs; save_packed()
        writes the rounded ones. Weights that are rounded already (load_packed(), torchao's) are taken as they are.
    activations: "int8" with such weights: rows become integers too before each product (few rows beside int4
        weights become integers of 16 bits).
    int8_weights: the same as weights="int8".
    training: fuse forward and backward passes too, of MLPs, experts and linear layers, where that gains: where PyTorch
        has no instructions for the dtype, and f32 on AMD's CPUs; "always" asks for it wherever it can run.
    tune: "model" runs every call fused that can be; "measure" times each shape once against the
        module's own forward, and keeps the faster one on disk.
    linears: linear layers and RMS norms beside MLPs too, where that gains in inference; False: MLPs alone; "always":
        whether they gain or not.
    memory: the most bytes that packed weights may take. MLPs come first and are all packed; experts of a
        mixture, then linear layers, stay PyTorch's if they do not fit.
    release: packed weights replace the originals in memory. Their values go to a file without a name (in the folder
        for temporary files, or in this one), which the parameters map: state_dict(), writes and a module's own forward
        find them there. unfuse() brings them back. What was packed runs fused at any number of rows.
    caches: keys and values of a transformers' DynamicCache that the model is called with grow in place (grow()), and are not copied
        for each token.
    attention: transformers' attention ("sdpa") runs by torch.ops.epilogue.attention where that gains, rotary embeddings as one op, and
        layers of one new token as one (or their attention, from q, k and v to the output), in inference.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"fuse() expects an nn.Module, got {type(model).__name__}")
    if tune not in ("model", "measure"):
        raise ValueError(f"tune is 'model' or 'measure', not {tune!r}")
    if training not in (False, True, "always"):
        raise ValueError(f"training is False, True or 'always', not {training!r}")
    if linears not in (False, True, "always"):
        raise ValueError(f"linears is False, True or 'always', not {linears!r}")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 0):
        raise ValueError(f"memory is a number of bytes, not {memory!r}")
    bits = bits_of(weights, activations, group, zero_points, int8_weights)
    folder = folder_of(release)
    if folder is not None and any(sharded.is_dtensor(p) for p in model.parameters()):
        raise ValueError("release=True is for parameters of one process: the model has DTensors")
    if folder is not None and tune == "measure":
        raise ValueError("release=True is for tune='model': what packed weights replace is not timed beside them")
    options = Options(bits=bits, training=training, tune=tune, linears=linears, release=folder is not None)
    _restore(model)
    for module in model.modules():
        norm_state.unfuse_norm(module)
        embedding_state.unfuse_embedding(module)
        prepared.unfuse_inputs(module)
        decoded.unfuse_decoded(module)
        decoded_layer.unfuse_decoded_layer(module)
        unfuse_attention(module)
    unfuse_caches(model)
    apart: "dict[nn.Module, str]" = {}  # by MLP
    for module in list(model.modules()):  # a layer comes before its MLP
        if _is_fused(module):
            state: State = module.__dict__[STATE]
            state.options = options
            state.refresh()
            state.apart = apart.get(module, state.apart)
            continue
        found = _plan_of(module)
        if isinstance(found, tuple):
            method, plan = found
            module.__dict__[STATE] = State(plan, options, None, apart.get(module))
            module.__class__ = fused_class(type(module), method)
            continue
        if is_layer(module):
            reason = _fuse_around(module, options, match_layer)
            if reason is not None:
                apart.update((child, reason) for child in module.children())
        if not _is_fused(module) and inline.is_candidate(module):
            _fuse_around(module, options, match_inline)
    of_mlps = _of_mlps(model)
    left = None if memory is None else memory - linear_state.bytes_of(of_mlps)
    left = experts_state.fuse_experts(model, options, memory, left, _is_fused)
    linear_state.fuse_linears(model, of_mlps, options, memory, left)
    for module in model.modules():
        if _is_fused(module) and type(module)._epilogue_norm is not None and module.__dict__[STATE].plan.residual:
            linear_state.expect_residuals(module)
    if linears:
        norm_state.fuse_norms(model, _norms_of_mlps(model))
        embedding_state.fuse_embeddings(model)
        prepared.fuse_inputs(model)
    if caches:
        fuse_caches(model)
    if attention:
        fuse_attention(model)
        decoded.fuse_decoded(model)
        decoded_layer.fuse_decoded_layers(model)
    if folder is not None:
        _release(model, folder)
    try:
        sharded.agree(model, _running(model, options))
    except RuntimeError:
        unfuse(model)
        raise
    return model


def _running(model: nn.Module, options: Options) -> "list[tuple[str, str]]":
    """What each module runs as, for sharded.agree()."""
    found = [("(options)", str(options))]
    for name, module in model.named_modules():
        if _is_fused(module):
            state: State = module.__dict__[STATE]
            reason = state.check(module)
            found.append((name, f"fused: {state.plan}" if reason is None else f"not fused: {reason}"))
        elif experts_state.is_fused_experts(module):
            found.append((name, "fused experts"))
        elif linear_state.is_fused_linear(module):
            split = sharded.split_of(module) if sharded.is_marked(module) else None
            found.append((name, f"not fused: {split}" if isinstance(split, str) else "a fused linear layer"))
        elif norm_state.is_fused_norm(module):
            found.append((name, "a fused norm"))
        elif embedding_state.is_fused_embedding(module):
            split = module.__dict__[embedding_state.STATE].split_of(module)
            found.append((name, f"not fused: {split}" if isinstance(split, str) else "a fused embedding"))
        if prepared.is_prepared(module):
            found.append((name, "its input by hooks of fuse()"))
    return found


def _packing(model: nn.Module) -> "list[tuple[State | experts_state.ExpertsState | linear_state.LinearState, nn.Module, str]]":
    """Whoever packs weights, and the parameters: a module and a name."""
    found: "list[typing.Any]" = []
    for module in model.modules():
        if _is_fused(module):
            state = module.__dict__[STATE]
            found += [(state, module.get_submodule(path), "weight") for path in state.plan.linears]
        elif experts_state.is_fused_experts(module):
            state = module.__dict__[experts_state.STATE]
            found += [(state, module, name) for name in state.plan.weights()]
        elif linear_state.is_fused_linear(module):
            found.append((module.__dict__[linear_state.STATE], module, "weight"))
    return found


def _release(model: nn.Module, folder: str) -> None:
    packing = _packing(model)
    parameters = releasable(model, [(module, name) for _, module, name in packing])
    if parameters:
        store = Store(parameters, folder)
        for state, _, _ in packing:
            state.store = store


def _restore(model: nn.Module) -> None:
    for state, module, name in _packing(model):
        parameter = module._parameters.get(name)
        if state.store is not None and type(parameter) is nn.Parameter:
            state.store.restore(parameter)
    for state, _, _ in _packing(model):
        state.store = None


def unfuse(model: nn.Module) -> nn.Module:
    """Undoes fuse(), in place."""
    _restore(model)
    for module in model.modules():
        if _is_fused(module):
            module.__class__ = unfused_class(type(module))
            module.__dict__.pop(STATE, None)
        experts_state.unfuse_experts(module)
        linear_state.unfuse_linear(module)
        norm_state.unfuse_norm(module)
        embedding_state.unfuse_embedding(module)
        prepared.unfuse_inputs(module)
        decoded.unfuse_decoded(module)
        decoded_layer.unfuse_decoded_layer(module)
        unfuse_attention(module)
    unfuse_caches(model)
    return model


def refresh(model: nn.Module) -> None:
    """Packs all weights anew at the next call: after writes that nothing tells of (an element
    through .data or NumPy)."""
    for module in model.modules():
        if _is_fused(module):
            module.__dict__[STATE].refresh()
        elif linear_state.is_fused_linear(module):
            module.__dict__[linear_state.STATE].refresh()
        elif experts_state.is_fused_experts(module):
            module.__dict__[experts_state.STATE].refresh()
        for state in (decoded.STATE, decoded_layer.STATE):
            if state in module.__dict__:
                module.__dict__[state].plans = []  # which hold what was packed


def packing_states(model: nn.Module) -> "list[State | experts_state.ExpertsState | linear_state.LinearState]":
    """Of all that packs weights: fused MLPs, experts and linear layers, in their order."""
    return list(dict.fromkeys(state for state, _, _ in _packing(model)))


def bits_by_linear(model: nn.Module) -> "tuple[dict[nn.Module, str], dict[str, typing.Any]]":
    """Which linear layers run with fewer bits, and the options of fuse() that all have."""
    bits: "dict[nn.Module, str]" = {}
    common: "dict[str, typing.Any]" = {}
    for module in model.modules():
        if _is_fused(module):
            state: State = module.__dict__[STATE]
            linears, options = [module.get_submodule(path) for path in state.plan.linears], state.options
        elif linear_state.is_fused_linear(module):
            linears, options = [module], module.__dict__[linear_state.STATE].options
        else:
            continue
        bits.update((linear, options.bits) for linear in linears)
        common = {**options_of(options.bits), "linears": options.linears}
    return bits, common


def states_of(model: nn.Module) -> "list[State]":
    """Of all fused MLPs, in their order."""
    return [module.__dict__[STATE] for module in model.modules() if _is_fused(module)]


def _layer_states(model: nn.Module) -> "dict[str, tuple[str, State]]":
    """By the name of the module that is the MLP: the fused layer around it."""
    found = {}
    for name, module in model.named_modules():
        if _is_fused(module) and type(module)._epilogue_norm is not None:
            state: State = module.__dict__[STATE]
            parents = {path.rpartition(".")[0] for path in state.plan.linears}
            inner = parents.pop() if len(parents) == 1 else ""
            found[".".join(p for p in (name, inner) if p)] = (name, state)
    return found


def _row(name: str, module: nn.Module, layer: "tuple[str, State] | None") -> Row:
    state: State = module.__dict__[STATE]
    kind = type(module)._epilogue_original.__name__
    what = str(state.plan)
    size = linear_state.bytes_of(module.get_submodule(path) for path in state.plan.linears)
    part = state.part()
    if layer is None:
        return Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, None, 0, state.apart, size, part)
    part = layer[1].part() or part
    outer, around = layer
    if around is state:  # a layer whose linear layers are its own children
        return Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, outer, state.fused_calls, None, size, part)
    what += f"; with {around.plan.around()} of {outer or '(the model)'}"
    calls = around.fused_calls
    apart = around.reason if around.own_calls else None
    return Row(name, kind, True, what, state.fused_calls + calls, state.own_calls, state.reason, outer, calls, apart, size, part)


def why(model: nn.Module, profile: typing.Any = None) -> Report:
    """Which MLPs (experts too) and linear layers of `model` are fused, how often they ran, why others are not, and what packing costs.

    profile: a torch.profiler.profile of a run, for the shares of the time that the rest has.
    """
    rows = []
    layers = _layer_states(model)
    for name, module in model.named_modules():
        if _is_fused(module):
            of_mlp = type(module)._epilogue_norm is None
            if of_mlp or name in layers:
                rows.append(_row(name, module, layers.get(name)))
            continue
        if experts_state.is_fused_experts(module):
            rows.append(experts_state.row_of(name, module))
            continue
        found = experts_state.experts_of(module) or _plan_of(module) or unmatched(module)
        if found is not None:
            what = str(found) if isinstance(found, NoMatch) else module.__dict__.get(experts_state.LEFT, "fuse() was not called")
            rows.append(Row(name, type(module).__name__, False, what))
    stores = {id(state.store): state.store.bytes for state, _, _ in _packing(model) if state.store is not None}
    linears = tuple(linear_state.rows_of(model, _of_mlps(model)))
    shares = () if profile is None else shares_of(profile)
    norms, embeddings = tuple(norm_state.rows_of(model)), tuple(embedding_state.rows_of(model))
    return Report(tuple(rows), linears, shares, sum(stores.values()), norms, grown_caches(model), attention_calls(model), embeddings, rotary_calls(model),
                  decoded.decoded_calls(model), decoded_layer.decoded_layers(model), decoded_layer.decoded_ahead(model),
                  decoded.decoded_reasons(model))
