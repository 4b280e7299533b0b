"""Where the units of a run are measured: processes of this machine, or workers of a cluster."""
