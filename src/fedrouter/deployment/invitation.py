"""The two strings that make a member: the coordinator's invitation, and the new member's request to join.

Each is one word of letters and digits, carries public things only, and is signed, so that comparing one fingerprint
over another channel is enough to know that nobody changed it on its way.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.deployment.address import check_host, check_name, host_and_port, split_address
from fedrouter.deployment.credentials import authority_der, authority_pem, check_node_key
from fedrouter.errors import BadInput
from fedrouter.federation.coordinator import Enrolled
from fedrouter.federation.identity import Identity, fingerprint, signed

INVITATION, REQUEST = "fedrouter-invitation-", "fedrouter-request-"
MOST = 100_000


@dataclass(frozen=True)
class Invitation:
    """Where the coordinator is, and the keys by which members know it.

    Parameters
    ----------
    address : ``host:port``, which SuperNodes connect to
    authority : certificate of the federation's authority, PEM
    coordinator : public key that signs terms and totals
    encoder : whose embeddings the federation learns from
    """

    address: str
    authority: bytes
    coordinator: bytes
    encoder: str

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.coordinator)

    def pack(self, signer: Identity) -> str:
        document = {
            "address": self.address,
            "authority": _text(authority_der(self.authority)),
            "encoder": self.encoder,
        }
        return _packed(INVITATION, document, signer)

    @classmethod
    def unpack(cls, text: str) -> Invitation:
        document, key = _unpacked(INVITATION, text, "an invitation, which `fedrouter federation coordinator` prints")
        try:
            host, port = split_address(str(document["address"]))
            authority = authority_pem(_bytes(document["authority"]))
            return cls(host_and_port(check_host(host), port), authority, key, str(document["encoder"]))
        except (KeyError, ValueError, BadInput) as error:
            raise BadInput(f"the invitation is signed, and yet not one that can be used ({error})") from None


@dataclass(frozen=True)
class JoinRequest(Enrolled):
    """Who wants to be a member, as it says itself."""

    def pack(self, signer: Identity) -> str:
        return _packed(REQUEST, {"name": self.name, "node": self.node, "models": list(self.models)}, signer)

    @classmethod
    def unpack(cls, text: str) -> JoinRequest:
        document, key = _unpacked(REQUEST, text, "a request to join, which `fedrouter federation join` prints")
        try:
            models = document["models"]
            if not isinstance(models, list) or not all(isinstance(each, str) for each in models):
                raise BadInput("models: expected a list of names")
            return cls(check_name(str(document["name"])), key, check_node_key(str(document["node"])), tuple(models))
        except (KeyError, BadInput) as error:
            raise BadInput(f"the request is signed, and yet not one of this version ({error})") from None


def read_word(given: str) -> str:
    """An invitation or a request, given itself or as the name of a file that has it."""
    if given.startswith((INVITATION, REQUEST)):
        return given
    path = Path(given)
    try:
        if path.is_file() and path.stat().st_size <= MOST:
            return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        pass
    raise BadInput(f"{given[:80]}: neither a file nor a string that starts with {INVITATION!r} or {REQUEST!r}")


def _packed(kind: str, document: dict[str, Any], signer: Identity) -> str:
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return kind + _text(signer.public + signer.sign(kind, content) + content)


def _unpacked(kind: str, text: str, what: str) -> tuple[dict[str, Any], bytes]:
    """The document and the key that signed it."""
    try:
        if not text.startswith(kind) or len(text) > MOST:
            raise ValueError
        packed = _bytes(text.removeprefix(kind))
        key, signature, content = packed[:32], packed[32:96], packed[96:]
        if not signed(key, signature, kind, content):
            raise ValueError
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError
    except ValueError:
        raise BadInput(f"expected {what}, whole and unchanged; got {text[:40]!r}…") from None
    return document, key


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
