"""The contract of a source as two calls, for the tests of this package and of other packages."""

from unloader.sources.testing.contract import check_many_tables, check_source

__all__ = ["check_many_tables", "check_source"]
