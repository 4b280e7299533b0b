"""Training runs: submitted by the owner of the coordinator, performed with the clients, resumed after a crash."""
