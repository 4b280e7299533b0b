"""Writes src/fedrouter/data/prices.json from LiteLLM's list: `python scripts/make_prices.py LIST.json VERSION`.

The list is `model_prices_and_context_window_backup.json` in LiteLLM's package. Only the models below are taken; compare
what changed with the providers' own pages before you commit it.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

TABLE = Path(__file__).parents[1] / "src" / "fedrouter" / "data" / "prices.json"
NOTE = (
    "Prices change, and contracts differ: compare these with your provider's page before you rely on costs or budgets. "
    "They are US dollars per million tokens, for prompts below the length at which some providers charge more. A price "
    "in your own config, or --price of a command, takes precedence."
)
PROVIDERS = {
    "openai": {
        "title": "OpenAI",
        "api_base": "https://api.openai.com/v1",
        "key": "OPENAI_API_KEY",
        "api": ["chat", "responses"],
        "page": "https://platform.openai.com/docs/pricing",
    },
    "anthropic": {
        "title": "Anthropic",
        "api_base": "https://api.anthropic.com/v1",
        "key": "ANTHROPIC_API_KEY",
        "api": ["chat", "messages"],
        "page": "https://docs.claude.com/en/docs/about-claude/pricing",
    },
    "gemini": {
        "title": "Google",
        "api_base": "https://generativelanguage.googleapis.com/v1beta/openai",
        "key": "GEMINI_API_KEY",
        "api": ["chat"],
        "page": "https://ai.google.dev/gemini-api/docs/pricing",
    },
    "mistral": {
        "title": "Mistral",
        "api_base": "https://api.mistral.ai/v1",
        "key": "MISTRAL_API_KEY",
        "api": ["chat"],
        "stream_usage": False,
        "page": "https://mistral.ai/pricing",
    },
    "deepseek": {
        "title": "DeepSeek",
        "api_base": "https://api.deepseek.com/v1",
        "key": "DEEPSEEK_API_KEY",
        "api": ["chat"],
        "page": "https://api-docs.deepseek.com/quick_start/pricing",
    },
    "xai": {
        "title": "xAI",
        "api_base": "https://api.x.ai/v1",
        "key": "XAI_API_KEY",
        "api": ["chat"],
        "page": "https://docs.x.ai/docs/models",
    },
}
MODELS = {
    "openai": (
        *("gpt-6-astra", "gpt-6-sol", "gpt-6-luna", "gpt-5.5", "gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano", "gpt-5.2"),
        *("gpt-5.1", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini", "o3"),
    ),
    "anthropic": (
        *("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-4-6", "claude-opus-4-5"),
        *("claude-sonnet-4-6", "claude-sonnet-4-5", "claude-haiku-4-5"),
    ),
    "gemini": (
        "gemini-2.5-pro",
        "gemini-2.5-flash",
        "gemini-2.5-flash-lite",
        "gemini-3.5-flash",
        "gemini-3.1-flash-lite",
    ),
    "mistral": ("mistral-large-2512", "mistral-small-2603", "ministral-8b-2512", "codestral-2508"),
    "deepseek": ("deepseek-v4-pro", "deepseek-v4-flash"),
    "xai": ("grok-4.5", "grok-4.3"),
}
ABILITIES = {
    "tools": "supports_function_calling",
    "json": "supports_response_schema",
    "vision": "supports_vision",
    "audio": "supports_audio_input",
    "files": "supports_pdf_input",
}


def dollars(per_token: float) -> float:
    """US dollars per million tokens, without what the division left."""
    return round(per_token * 1e6, 6)


def main(listed: Path, version: str) -> None:
    known = json.loads(listed.read_text())
    models = {}
    for provider, names in MODELS.items():
        for name in names:
            entry = known.get(f"{provider}/{name}") or known[name]
            cached = entry.get("cache_read_input_token_cost")
            models[name] = {
                "provider": provider,
                "input": dollars(entry["input_cost_per_token"]),
                "output": dollars(entry["output_cost_per_token"]),
                **({"cached_input": dollars(cached)} if cached else {}),
                "context": entry["max_input_tokens"],
                "abilities": [ability for ability, field in ABILITIES.items() if entry.get(field)],
            }
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "source": f"LiteLLM {version}'s list of model prices",
        "note": NOTE,
        "providers": PROVIDERS,
        "models": models,
    }
    lines = [f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in models.items()]
    text = json.dumps(document | {"models": {}}, indent=2)
    TABLE.write_text(text.replace('"models": {}', '"models": {\n' + ",\n".join(lines) + "\n  }") + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
