"""A plugin of mypy: `msgspec.structs.replace` takes the fields of its value, each of its own type.

Its stubs accept any keyword; mypy has this check for the standard library's `replace` alone.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import FunctionSigContext, Plugin
from mypy.plugins.dataclasses import replace_function_sig_callback
from mypy.types import FunctionLike


class _Structs(Plugin):
    def get_function_signature_hook(self, fullname: str) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Return what knows the parameters of `replace`."""
        return replace_function_sig_callback if fullname == "msgspec.structs.replace" else None


def plugin(_: str) -> type[Plugin]:
    """Return the plugin, whatever version of mypy asks."""
    return _Structs
