"""The fixtures of the gateway's tests: what is attacked is a real gateway on a real port."""

from gateway.conftest import bundle, encoder_of, known_prompts, start, upstream  # noqa: F401
