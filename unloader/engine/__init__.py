"""The one loop: tasks to the places of an executor, results back, failures retried."""
