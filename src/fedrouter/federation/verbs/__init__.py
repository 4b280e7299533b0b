"""The verbs: everything a server may ask a client, one file each."""
