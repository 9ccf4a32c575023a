"""A run's output: what attempts write, what is recorded of them, and what is published.

`base` has the one protocol that a run knows, `opening` chooses the kind, each kind has its module.
Where the bytes lie is `unloader.storage`'s.
"""
