"""The native text encoder: a library in C++ that writes what `writers.delimited` writes, faster.

It is optional: `writers.native.library` says whether it was built and can be used.
"""
