"""What the parent tells a worker while its task runs; the worker's side.

    from numa import told

    told.listen(gate.change)

The listener is called in a thread of its own, at once and in the order in which things were told. A
task that wants to know must look at what the listener has kept. Without a listener nothing happens.
"""

from collections.abc import Callable

Listener = Callable[[object], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Have a function called with whatever the parent tells from now on."""
    _listeners.append(listener)


def tell(payload: object) -> None:
    """Call the listeners; for the process's own loop."""
    for listener in _listeners:
        listener(payload)
