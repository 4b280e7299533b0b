"""One verb a file; the list of files is the complete list of what may leave a client."""
