"""The gateway's one YAML file: which models there are and what they charge, and how requests are treated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from fedrouter.errors import BadInput
from fedrouter.gateway.fields import BadConfig, Fields, Problem, parse
from fedrouter.learning.judges import Answered, PricedModel
from fedrouter.learning.panel import judge_of

ENCODERS = ("torch", "onnx")
"""What runs the encoder; see encoders/onnx.py for the lighter one."""
ABILITIES = ("tools", "vision", "json", "audio")
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Upstream:
    """One model of the pool: where it is asked, under which name there, and what it charges per million tokens."""

    name: str
    base_url: str
    model: str
    input_price: float
    output_price: float
    cached_price: float | None = None
    context: int | None = None
    abilities: frozenset[str] = frozenset({"tools", "json"})
    key: str | None = field(default=None, repr=False)
    key_header: str = "authorization"
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """How long an upstream may take, in seconds, and how often it is asked again."""

    connect: float = 5.0
    answer: float = 120.0
    idle: float = 60.0
    deadline: float = 300.0
    retries: int = 2
    longest_wait: float = 5.0
    breaker_failures: int = 5
    breaker_rest: float = 30.0


@dataclass(frozen=True)
class Routing:
    """How a model is chosen. ``region`` and ``error`` say when the router is unsure; see docs/gateway.md."""

    bundle: str | None = None
    tradeoff: float = 100.0
    default_model: str = ""
    baseline_model: str = ""
    region: float = 0.12
    error: float = 0.35
    encoder: str = "torch"
    encoder_timeout: float = 2.0
    encoder_cache: int = 20_000
    sticky_gain: float = 0.05
    sticky_seconds: float = 3600.0
    explore_share: float = 0.0
    explore_extra_cost: float = 0.1


@dataclass(frozen=True)
class Door:
    """Who may come in, and with how much."""

    auth: bool = True
    host: str = "127.0.0.1"
    port: int = 8080
    body_limit: int = 32 * MEGABYTE
    answer_limit: int = 64 * MEGABYTE
    rate_per_minute: int | None = None


@dataclass(frozen=True)
class Judge:
    """One way to score answers in the background; its ``settings`` are its own."""

    kind: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Judging:
    """Which judges score answers, how many answers, and for how much money."""

    judges: tuple[Judge, ...] = ()
    share: float = 1.0
    daily_budget: float = 1.0
    per_minute: int = 60


@dataclass(frozen=True)
class Config:
    """Everything ``fedrouter serve`` needs to know."""

    models: tuple[Upstream, ...]
    routing: Routing = Routing()
    timing: Timing = Timing()
    door: Door = Door()
    judging: Judging = Judging()
    store: str = "sqlite:///fedrouter.db"
    keep_text: bool = False

    def model(self, name: str) -> Upstream:
        return next(model for model in self.models if model.name == name)


def read_config(path: str | Path) -> Config:
    """The config in a file, or :class:`BadConfig` with everything that is wrong in it."""
    path = Path(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(str(path), [Problem(1, "", f"cannot be read ({type(error).__name__})")]) from None
    problems: list[Problem] = []
    top = parse(text, problems)
    config = _config(top, path.parent) if not problems else None
    if problems or config is None:
        raise BadConfig(str(path), problems)
    return config


def _config(top: Fields, folder: Path) -> Config:
    models = [_upstream(entry) for entry in top.items("model_list")]
    names = [model.name for model in models if model.name]
    if "model_list" not in top or not models:
        top.wrong("model_list", "expected at least one model")
    for place, (entry, model) in enumerate(zip(top.items("model_list"), models, strict=True)):
        if model.name in names[:place]:
            entry.wrong("model_name", f"{model.name!r} is there twice")
        if model.name == "auto" or model.name.startswith("router-"):
            entry.wrong("model_name", f"{model.name!r} is a name of the router's own; choose another")
    config = Config(
        tuple(models),
        _routing(top, names, folder),
        _timing(top.group("timing")),
        _door(top.group("server")),
        _judging(top.group("judges"), names),
        top.text("store", "sqlite:///fedrouter.db"),
        top.flag("keep_prompts", False),
    )
    top.done()
    return config


def _upstream(entry: Fields) -> Upstream:
    params = entry.group("params")
    name = entry.text("model_name", required=True)
    if "params" not in entry:
        entry.wrong("params", "is missing; expected at least api_base")
    base = params.text("api_base", required="params" in entry).rstrip("/")
    parts = urlsplit(base)
    if base and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query):
        params.wrong("api_base", "expected http(s)://host[:port]/path, without user or query")
    found = Upstream(
        name,
        base,
        params.text("model", name),
        _price(entry, "input_price"),
        _price(entry, "output_price"),
        entry.optional_number("cached_input_price"),
        entry.whole("context", None, 1),
        entry.words("abilities", ABILITIES, ("tools", "json")),
        params.secret("api_key"),
        params.text("key_header", "authorization").lower(),
        params.mapping("query"),
    )
    params.done()
    entry.done()
    return found


def _price(entry: Fields, name: str) -> float:
    if name not in entry:
        entry.wrong(name, "is missing: a model without a price is refused; write 0 if it is free")
    return entry.number(name, 0.0)


def _routing(top: Fields, names: list[str], folder: Path) -> Routing:
    group, usual = top.group("routing"), Routing()
    bundle = group.text("bundle") or None
    if bundle is not None:
        place = folder / Path(bundle).expanduser()
        if not (place / "bundle.json").is_file():
            group.wrong("bundle", f"no bundle there: {place}")
        bundle = str(place)
    chosen: dict[str, str] = {}
    for name in ("default_model", "baseline_model"):
        found = group.text(name, required=bool(names))
        if found and found not in names:
            group.wrong(name, f"{found!r} is not in model_list ({', '.join(names)})")
        chosen[name] = found
    encoder = group.text("encoder", usual.encoder)
    if encoder not in ENCODERS:
        group.wrong("encoder", f"expected {' or '.join(ENCODERS)}, got {encoder!r}")
    elif encoder == "onnx" and find_spec("onnxruntime") is None:
        group.wrong("encoder", "onnx needs another package: pip install 'fedrouter[onnx]'")
    sticky, explore = group.group("sticky"), group.group("explore")
    routing = Routing(
        bundle,
        group.number("tradeoff", usual.tradeoff),
        **chosen,
        region=group.number("region", usual.region, least=-1.0, most=1.0),
        error=group.number("error", usual.error),
        encoder=encoder,
        encoder_timeout=group.number("encoder_timeout", usual.encoder_timeout),
        encoder_cache=group.whole("encoder_cache", usual.encoder_cache) or 0,
        sticky_gain=sticky.number("gain", usual.sticky_gain),
        sticky_seconds=sticky.number("seconds", usual.sticky_seconds),
        explore_share=explore.number("share", usual.explore_share, most=1.0),
        explore_extra_cost=explore.number("extra_cost", usual.explore_extra_cost),
    )
    for part in (sticky, explore, group):
        part.done()
    return routing


def _timing(group: Fields) -> Timing:
    usual = Timing()
    seconds = {
        name: group.number(name, getattr(usual, name))
        for name in ("connect", "answer", "idle", "deadline", "longest_wait", "breaker_rest")
    }
    counts = {name: group.whole(name, getattr(usual, name)) or 0 for name in ("retries", "breaker_failures")}
    group.done()
    return Timing(**seconds, **counts)  # type: ignore[arg-type]


def _door(group: Fields) -> Door:
    usual = Door()
    door = Door(
        group.flag("auth", usual.auth),
        group.text("host", usual.host),
        group.whole("port", usual.port) or 0,
        int(group.number("body_limit_mb", usual.body_limit / MEGABYTE) * MEGABYTE),
        int(group.number("answer_limit_mb", usual.answer_limit / MEGABYTE) * MEGABYTE),
        group.whole("rate_per_minute", None, 1),
    )
    group.done()
    return door


async def _never(messages: Sequence[Mapping[str, str]], most: int) -> Answered:
    raise NotImplementedError  # for a check that asks nobody


def _judging(group: Fields, names: list[str]) -> Judging:
    usual = Judging()
    judges, models = [], {name: PricedModel(name, _never, 0.0, 0.0) for name in names}
    for entry in group.items("list"):
        judge = Judge(entry.text("kind", required=True), entry.mapping("settings"))
        try:
            judge_of(judge.kind, judge.settings, models)
        except BadInput as error:
            entry.wrong("settings" if judge.settings else "kind", str(error))
        judges.append(judge)
        entry.done()
    judging = Judging(
        tuple(judges),
        group.number("share", usual.share, most=1.0),
        group.number("daily_budget", usual.daily_budget),
        group.whole("per_minute", usual.per_minute) or 0,
    )
    group.done()
    return judging
