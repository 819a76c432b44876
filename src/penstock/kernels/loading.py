"""Machine code from Numba's cache, without what Numba needs only to compile.

Asked for a cached function, Numba first gathers all that it can compile, which takes longer than to import it
and to run a first window together. Code that is there needs none of that. If it is not there, or a later
Numba keeps it in another way, nothing is loaded here, and the loop is built as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def loaded(function: Function, signature: Any, **options: Any) -> Function | None:
    """The function's code for one signature, as `numba.njit` left it in the cache; None if it did not.

    function   its name and code are looked for, what it calls is not looked at
    signature  Numba's types of the arguments
    options    those of `numba.njit` for it
    """
    import numba
    from numba.core.runtime import rtsys

    dispatcher: Any = numba.njit(function, cache=True, **options)
    try:
        cache, context = dispatcher._cache, dispatcher.targetctx
        rtsys.initialize(context)  # what allocates arrays for compiled code
        found = cache._load_overload(signature, context)
    except Exception:  # another Numba, or a damaged file: building it will do, or say why not
        return None
    if found is None:
        return None
    cache.load_overload = lambda wanted, where: found
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    built: Function = dispatcher
    return built
