"""A federation across machines: state directories, credentials, invitations, and the processes that run it.

- ``directories.py``: what is in the coordinator's and in a member's directory; ``credentials.py``: TLS and node keys
- ``invitation.py``: the two strings that a coordinator and a new member exchange; ``address.py``: names and addresses
- ``lock.py``: one process a directory; ``program.py``, ``tether.py``: programs that end with whoever started them
- ``coordinator.py``: the coordinator's process; ``runs.py``: an epoch from outside
- ``member.py``: a member's process; ``own_log.py``: its evaluations; ``home.py``: its own router
"""
