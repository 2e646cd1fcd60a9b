"""What developers of the course run; nothing here is installed with the package, and the package imports none of it."""
