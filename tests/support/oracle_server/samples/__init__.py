"""Tables to try an unloader on."""
