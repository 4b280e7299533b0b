"""State on disk: the directories of the coordinator and of a client, with config, credentials and locks."""
