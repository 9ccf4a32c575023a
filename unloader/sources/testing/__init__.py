"""The contract of a source as one call, for the tests of this package and of other packages."""

from unloader.sources.testing.contract import check_source

__all__ = ["check_source"]
