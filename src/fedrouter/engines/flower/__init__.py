"""The engine over Flower, and everything else that knows Flower; no other package imports it.

Only Flower's public interface is used: `flwr.app`, `flwr.serverapp`, `flwr.clientapp`, and its programs.

- ``server_app.py``: performs one epoch where a SuperLink runs it; ``grid.py``: its messages
- ``client_relay.py``: what SuperNodes run: bytes in, bytes out, to the member's own process
- ``programs.py``: Flower's programs as they are started here, and the app that a run names
"""
