"""The client process: stays connected to the coordinator and answers its requests from private evaluations."""
