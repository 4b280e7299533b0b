"""Encoders: text to embedding; who made an embedding travels with every router."""

from fedrouter.encoders.identity import KNOWN, OFFLINE, EncoderIdentity, column_stem

__all__ = ["KNOWN", "OFFLINE", "EncoderIdentity", "column_stem"]
