"""What each type of Oracle becomes, and the SQL by which it comes without a change."""
