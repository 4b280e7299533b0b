"""The gateway's configuration, one section a file: the one source of its fields, defaults, limits and documentation.

:mod:`fedrouter.gateway.config_file` reads it from YAML and reports errors by line; docs/gateway.md has a table that
is generated from it.
"""

from fedrouter.gateway.config.config import Config
from fedrouter.gateway.config.judges import JudgeConfig, JudgesConfig
from fedrouter.gateway.config.learning import LearningConfig
from fedrouter.gateway.config.models import ABILITIES, Upstream, UpstreamParams
from fedrouter.gateway.config.retention import RetentionConfig
from fedrouter.gateway.config.routing import ExploreConfig, RoutingConfig, StickyConfig
from fedrouter.gateway.config.server import ServerConfig
from fedrouter.gateway.config.spool import SpoolConfig
from fedrouter.gateway.config.telemetry import TelemetryConfig
from fedrouter.gateway.config.timing import TimingConfig

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
    "SpoolConfig",
    "StickyConfig",
    "TelemetryConfig",
    "TimingConfig",
    "Upstream",
    "UpstreamParams",
]
