"""A plugin of mypy: `msgspec.structs.replace` takes the fields of its value, each of its own type.

Its stubs accept any keyword; mypy has this check for the standard library's `replace` alone, and takes every
Struct for a dataclass. So a Struct as argument of the standard library's functions is an error here, too.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import FunctionSigContext, Plugin
from mypy.plugins.dataclasses import replace_function_sig_callback
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    Type,
    TypeType,
    TypeVarType,
    UnionType,
    get_proper_type,
)

_STANDARD = ("dataclasses.replace", "dataclasses.asdict", "dataclasses.astuple", "dataclasses.fields")


def _replace_of_structs(ctx: FunctionSigContext) -> CallableType:
    """Return the signature of `msgspec.structs.replace` for its first argument, which has to be a Struct."""
    struct = get_proper_type(ctx.default_signature.arg_types[0])
    known = replace_function_sig_callback(ctx)
    if known is ctx.default_signature or not isinstance(struct, TypeVarType):
        return known
    return known.copy_modified(arg_types=[struct.upper_bound, *known.arg_types[1:]])


def _of_dataclasses(ctx: FunctionSigContext) -> FunctionLike:
    """Return the signature of a function of the standard library; complain of a Struct as its argument."""
    if ctx.args and len(ctx.args[0]) == 1 and _is_struct(ctx.api.get_expression_type(ctx.args[0][0])):
        name = ctx.default_signature.name
        ctx.api.fail(f"{name} of the standard library cannot use a Struct: msgspec.structs can", ctx.context)
    is_replace = "replace" in str(ctx.default_signature.name)
    return replace_function_sig_callback(ctx) if is_replace else ctx.default_signature


def _is_struct(given: Type) -> bool:
    """Return whether a type is a Struct, the class of one, or a union with one."""
    kind = get_proper_type(given)
    if isinstance(kind, CallableType) and kind.is_type_obj():
        kind = get_proper_type(kind.ret_type)
    if isinstance(kind, TypeType):
        kind = get_proper_type(kind.item)
    if isinstance(kind, UnionType):
        return any(_is_struct(item) for item in kind.items)
    return isinstance(kind, Instance) and kind.type.has_base("msgspec.Struct")


class _Structs(Plugin):
    def get_function_signature_hook(
        self, fullname: str
    ) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Return what checks a call of the function `fullname`; None if it is none of these."""
        if fullname == "msgspec.structs.replace":
            return _replace_of_structs
        return _of_dataclasses if fullname in _STANDARD else None


def plugin(_: str) -> type[Plugin]:
    """Return the plugin, whatever version of mypy asks."""
    return _Structs
