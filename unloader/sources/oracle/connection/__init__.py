"""Connecting to an Oracle database: the URL, the password, the session and what its errors mean."""
