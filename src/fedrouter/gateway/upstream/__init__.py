"""The models' own servers: attempts, streams, health."""
