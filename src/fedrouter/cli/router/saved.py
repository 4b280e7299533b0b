"""Opens a bundle together with data for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrouter.cli.output import Voice, bars
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.data.read import Dataset
    from fedrouter.pool import ModelPool
    from fedrouter.routers.base import Router


NO_VERDICT = "none; it takes a table with several models' answers to each query"
OPTIMISTIC = "the router was trained on queries of this very file, so the verdict is optimistic"


def open_with_data(bundle: Path, data: Path) -> tuple[Bundle, Dataset]:
    """A bundle, and data read with its encoder and pool."""
    from fedrouter.bundle import load

    saved = load(bundle)
    return saved, read_for(saved, data, saved.router.pool)


def read_for(saved: Bundle, data: Path, pool: ModelPool | None = None) -> Dataset:
    """Data read with the bundle's encoder; with the data's own models unless a pool is given."""
    from fedrouter.data.read import read

    with bars() as shown:
        dataset = read(
            data,
            encoder=saved.encoder.name,
            pool=pool,
            watch=lambda done, total: shown.move("encoding", done, total),
        )
    if dataset.encoder.dimension != saved.encoder.dimension:
        raise BadInput(
            f"{data}: its embeddings are by {dataset.encoder.name} and have width {dataset.encoder.dimension}, but "
            f"{saved.path} was trained on {saved.encoder.name} of width {saved.encoder.dimension}; use a file with its "
            "embeddings or with text, or learn the router again"
        )
    if dataset.encoder.weights is not None:  # the text was encoded here and now
        saved.encoder.require(dataset.encoder, str(saved.path))
    return dataset


def verdict_on(saved: Bundle, dataset: Dataset) -> tuple[dict[str, Any], list[str]]:
    """Whether the saved router is worth having on this data, as part of the JSON output, and what to warn about."""
    from fedrouter.calibration import comparable
    from fedrouter.frontier import judge

    evaluations = dataset.evaluations.over(saved.router.pool)
    truth, estimates = evaluations.grid(), saved.router.estimate(evaluations.embeddings)
    if len(truth.pool) < 2 or not comparable(estimates, truth):
        return {"verdict": NO_VERDICT, "verdicts": {}}, []
    verdict = judge(estimates, truth)
    trained = saved.manifest["data_digest"] == dataset.digest
    return {"verdict": verdict.text, "verdicts": {saved.router.family: verdict.to_json()}}, [OPTIMISTIC] * trained


def areas_before_and_after(
    voice: Voice, saved: Bundle, router: Router, test: Path | None
) -> dict[str, dict[str, Any]] | None:
    """Measures of both routers on a table of answers, among the models of the newer one."""
    if test is None:
        return None
    from fedrouter.frontier import sweep

    evaluations = read_for(saved, test, router.pool).evaluations
    truth = evaluations.grid()
    areas = {
        when: sweep(one.estimate(evaluations.embeddings).over(router.pool), truth).measures.to_json()
        for when, one in (("before", saved.router), ("after", router))
    }
    shown = ("auc", "aiq", "max_accuracy")
    voice.table(
        [f"on {test.name}", *shown],
        [[when, *(f"{found[name]:.4f}" for name in shown)] for when, found in areas.items()],
    )
    return areas
