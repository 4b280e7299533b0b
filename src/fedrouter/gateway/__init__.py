"""The gateway: an OpenAI-compatible server that routes each request, logs what it cost, and learns from feedback."""
