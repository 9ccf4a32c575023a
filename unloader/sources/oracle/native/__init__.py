"""The native fetch: rows taken out of the server's responses and decoded in C++.

The driver connects, executes, asks for rows and handles errors. Only what a response has of rows is
read here; the driver gets the rest, as if there had been no rows. docs/oracle-fetch.md tells when
this is used and what keeps it honest.
"""
