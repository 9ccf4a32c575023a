"""What `unloader status` and `unloader runs` show."""
