"""The native text encoder: a library in C++ that writes the bytes of `writers.text.delimited`.

It is optional: `writers.native.encoder` reports whether it was built and can be used.
"""
