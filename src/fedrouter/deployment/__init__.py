"""A federation across machines: state directories with keys and certificates, the processes, and their runs.

- ``state/``: what is on disk: the coordinator's and a client's directory, config files, credentials, process locks
- ``client/``: the client process, and the client's evaluations and privacy settings
- ``coordinator/``: the coordinator process and its roster of enrolled clients
- ``runs/``: one training run: its job, handshake, progress, result and history
- ``delivery/``: accepted bundles, offered by the coordinator and pulled by clients

Each package imports only those above it. Everything specific to Flower is in :mod:`fedrouter.engines.flower`.
"""
