"""Several worker processes behind one port: the listening socket, a worker, and the supervisor of all."""
