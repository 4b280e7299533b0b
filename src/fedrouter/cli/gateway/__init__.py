"""Commands of the gateway's operator."""
