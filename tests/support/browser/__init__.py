"""A real browser for tests: Chromium without a window, from Debian's packages."""
