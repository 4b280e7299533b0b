"""The engine over Flower, and everything else that knows Flower; no other package imports it.

- ``engine.py``, ``records.py``: a federation over Flower's messages, and how our messages become its records
- ``client_app.py``, ``server_app.py``, ``shipped_app.py``: the two sides of a run, and the app that a run ships
- ``control.py``: the client of a SuperLink's control API (nodes and runs)
- ``processes.py``, ``process_entry.py``, ``log_lines.py``: SuperLink and SuperNode as child processes
- ``access_filter.py``: which requests of a SuperLink other machines may make
- ``version.py``: the version of Flower that all of this was tested with
"""
