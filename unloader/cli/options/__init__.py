"""Options as parameters of click, the rules between them, and the request that they make."""
