"""The engine over Flower, and everything else that knows Flower; no other package imports it.

- ``engine.py``: a federation over Flower's messages; ``encoding.py``: an exchange as one string of bytes
- ``run_link.py``: the server's side of a run; ``control.py``: which nodes and runs a SuperLink has
- ``node_link.py``, ``client_loop.py``, ``answering.py``: the client's side; it runs nothing that it is sent
- ``run_app.py``: the app that a run names, by which a client recognizes its own protocol
- ``http.py``, ``objects.py``: requests to a SuperLink, and its messages as the objects that it stores
- ``processes.py``, ``superlink.py``: the SuperLink as a child process
- ``access_filter.py``: which requests of a SuperLink other machines may make, and how large
- ``version.py``: the version of Flower that all of this was tested with
"""
