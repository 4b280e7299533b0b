"""The gateway's configuration, the one source of its fields, defaults, limits and documentation.

:mod:`fedrouter.gateway.config_file` reads it from YAML and reports errors by line;
docs/reference/gateway.md has a table of it.
"""

from fedrouter.gateway.config.config import Config
from fedrouter.gateway.config.learning import JudgeConfig, JudgesConfig, LearningConfig
from fedrouter.gateway.config.models import ABILITIES, Upstream, UpstreamParams
from fedrouter.gateway.config.routing import ExploreConfig, RoutingConfig
from fedrouter.gateway.config.server import RetentionConfig, ServerConfig, TimingConfig

__all__ = [
    "ABILITIES",
    "Config",
    "ExploreConfig",
    "JudgeConfig",
    "JudgesConfig",
    "LearningConfig",
    "RetentionConfig",
    "RoutingConfig",
    "ServerConfig",
    "TimingConfig",
    "Upstream",
    "UpstreamParams",
]
