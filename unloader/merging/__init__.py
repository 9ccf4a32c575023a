"""The parts of a plan, once all are published: checked, and put together under one manifest."""
