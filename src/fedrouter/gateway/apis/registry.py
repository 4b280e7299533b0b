"""All APIs, by the names that configs use."""

from __future__ import annotations

from collections.abc import Mapping

from fedrouter.gateway.apis.anthropic import MESSAGES
from fedrouter.gateway.apis.api import Api
from fedrouter.gateway.apis.openai import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES

APIS: Mapping[str, Api] = {api.name: api for api in (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES)}
