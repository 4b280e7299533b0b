"""Opens an encoder by its name: ``static``, or a sentence-transformers model run by torch or onnxruntime."""

from __future__ import annotations

from fedrouter.encoders.encoder import Encoder
from fedrouter.encoders.identity import STATIC


def open_encoder(name: str = STATIC, backend: str = "torch") -> Encoder:
    """Load an encoder; ``backend`` is what runs a neural network, ``torch`` or ``onnx``."""
    if name == STATIC:
        from fedrouter.encoders.static import static_encoder

        return static_encoder()
    if backend == "onnx":
        from fedrouter.encoders.onnx import OnnxEncoder

        return OnnxEncoder(name)
    from fedrouter.encoders.sentence import SentenceEncoder

    return SentenceEncoder(name)
