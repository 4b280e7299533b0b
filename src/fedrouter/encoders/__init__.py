"""Encoders turn text into embeddings; the identity of the encoder is saved with every router."""

from fedrouter.encoders.identity import KNOWN, OFFLINE, STATIC, EncoderIdentity, column_stem

__all__ = ["KNOWN", "OFFLINE", "STATIC", "EncoderIdentity", "column_stem"]
