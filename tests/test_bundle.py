"""Bundles: a router comes back as it was, and anything else is refused."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.bundle import Provenance, load, refuse_existing, save
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadBundle, BadInput
from fedrouter.evidence import Evidence
from fedrouter.federation.families.bayes import from_rows
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.pool import Model, ModelPool
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter, Prior
from fedrouter.routers.kmeans import KMeansRouter
from fedrouter.routers.personal import PersonalRouter
from fedrouter.routers.registry import ROUTERS

POOL = ModelPool([Model("model-0", 1.0, 2.0, 8000), "model-1", "model-2"])
ENCODER = EncoderIdentity("some-encoder", 8, True)
PROVENANCE = Provenance("a file", "sha256:00", 3, 5, [{"name": "client-0", "rows": 60}], {"k_local": 15})
WEIGHTS = np.array([[0.25, 0.0, 1.0], [0.5, 0.0, 1.0]])
"""Of a personal router: for accuracy and for cost."""


def learned(name, **settings):
    """A router of the rows of one client."""
    federation = LocalFederation({"one": drawn_evaluations()})
    return FAMILIES[name].learn(federation, POOL, FAMILIES[name].settings(**settings))


@pytest.fixture(params=FAMILIES, scope="module")
def router(request):
    family = FAMILIES[request.param]
    federation = LocalFederation({f"client-{seed}": drawn_evaluations(seed=seed) for seed in range(3)})
    return family.learn(federation, POOL, family.settings())


@pytest.fixture
def bundle(router, tmp_path):
    return save(tmp_path / "bundle", router, ENCODER, PROVENANCE)


def test_a_router_comes_back_as_it_was(bundle, router):
    again = load(bundle)
    queries = drawn_evaluations(seed=9).embeddings
    assert type(again.router) is type(router)
    assert np.array_equal(again.router.estimate(queries).accuracy, router.estimate(queries).accuracy)
    assert np.array_equal(again.router.estimate(queries).cost, router.estimate(queries).cost)
    assert again.router.pool == POOL
    assert again.encoder == ENCODER


def test_the_manifest_says_where_it_comes_from(bundle, router):
    manifest = json.loads((bundle / "bundle.json").read_text())
    assert manifest["family"] == router.family
    assert manifest["pool"][0] == {"name": "model-0", "input_price": 1.0, "output_price": 2.0, "context": 8000}
    assert manifest["encoder"] == {"name": "some-encoder", "dimension": 8, "normalised": True}
    for field in ("hyperparameters", "data_digest", "seed", "rounds", "clients", "versions"):
        assert manifest[field], field


def test_the_same_router_makes_the_same_bytes(bundle, router, tmp_path):
    again = save(tmp_path / "again", router, ENCODER, PROVENANCE)
    for name in ("bundle.json", "router.safetensors"):
        assert (bundle / name).read_bytes() == (again / name).read_bytes()


CELLS = {f"evidence.cells.{name}" for name in ("centers", "shares", "width")}
FLOATS = CELLS | {"evidence.scales", "prior.mean", "prior.error", "total.noise", "weight"}
"""Arrays of a bayes bundle that are constants or were given to the router; all others are integers."""


def test_a_bayes_bundle_holds_integers_and_what_was_given_and_no_weights(tmp_path):
    rows = [drawn_evaluations(seed=seed) for seed in range(2)]
    evidence = from_rows(rows).evidence
    prior = Prior(np.zeros((3, 2)), np.ones((3, 2)))
    total = Release.of(rows[1], evidence.features.without_cells())
    router = BayesRouter.of(evidence, total, 0.5, prior)
    assert {name for name, array in router.arrays().items() if array.dtype.kind != "i"} == FLOATS
    manifest = json.loads((save(tmp_path / "b", router, ENCODER, PROVENANCE) / "bundle.json").read_text())
    assert manifest["format"] == 2
    assert manifest["sums"] == {
        "features": evidence.features.digest,
        "evidence": evidence.digest,
        "total": total.digest,
    }
    again = load(tmp_path / "b").router
    assert again.penalties == router.penalties
    assert np.array_equal(again.accuracy.weights, router.accuracy.weights)


def test_the_digest_of_evidence_does_not_depend_on_the_order_in_which_it_was_added_up():
    one, two = drawn_evaluations(seed=1), drawn_evaluations(seed=2)
    features = from_rows([one]).evidence.features
    parts = [Evidence.of(rows, features) for rows in (one, two)]
    assert (parts[0] + parts[1]).digest == (parts[1] + parts[0]).digest != parts[0].digest


@pytest.mark.parametrize("sums", [{"features": "sha256:00"}, {}, None, ["x"]])
def test_a_bayes_bundle_whose_features_are_others_here_is_refused(tmp_path, sums):
    path = save(tmp_path / "b", from_rows([drawn_evaluations()]), ENCODER, PROVENANCE)
    sign_again(path, sums=sums)
    with pytest.raises(BadBundle, match=r"features are not those .* fedrouter learn LOG --out DIR|do not fit together"):
        load(path)


@pytest.mark.parametrize("name", ["kmeans", "mlp"])
def test_a_bundle_of_format_1_of_the_papers_families_is_read(tmp_path, name):
    router = learned(name, **({"rounds": 1, "hidden": (4,)} if name == "mlp" else {}))
    path = save(tmp_path / "b", router, ENCODER, PROVENANCE)
    sign_again(path, "sums", format=1)
    queries = drawn_evaluations(seed=9).embeddings
    assert np.array_equal(load(path).router.estimate(queries).accuracy, router.estimate(queries).accuracy)


@pytest.mark.parametrize("name", ["auto", "bayes", "kernel", "linear", "mf", "query_blind"])
def test_a_bundle_of_format_1_of_another_family_is_refused_with_the_command_that_learns_anew(tmp_path, name):
    path = save(tmp_path / "b", from_rows([drawn_evaluations()]), ENCODER, PROVENANCE)
    sign_again(path, "sums", format=1, family=name)
    with pytest.raises(BadBundle, match=f"'{name}' in format 1 is not read; learn anew: fedrouter learn LOG --out DIR"):
        load(path)


def sign_again(path, *without, **changes):
    """Edit a manifest as somebody can who knows how digests are made."""
    manifest = json.loads((path / "bundle.json").read_text()) | changes
    content = {name: value for name, value in manifest.items() if name not in ("digest", *without)}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (path / "bundle.json").write_text(json.dumps({**content, "digest": f"sha256:{digest}"}))


def test_a_bundle_is_never_overwritten_and_leaves_nothing_half_written(bundle, router):
    before = sorted(path.name for path in bundle.parent.iterdir())
    with pytest.raises(BadInput, match="already exists"):
        save(bundle, router, ENCODER, PROVENANCE)
    assert sorted(path.name for path in bundle.parent.iterdir()) == before


def test_a_router_is_not_saved_with_another_encoder(router, tmp_path):
    with pytest.raises(BadInput, match="width 8, the encoder makes 9"):
        save(tmp_path / "b", router, EncoderIdentity("other", 9, True), PROVENANCE)
    assert not list(tmp_path.iterdir())


def edit(bundle, **changes):
    path = bundle / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda b: (b / "router.safetensors").write_bytes((b / "router.safetensors").read_bytes()[:-7]), "truncated"),
        (lambda b: (b / "router.safetensors").unlink(), "no readable router.safetensors"),
        (lambda b: (b / "bundle.json").unlink(), "not a bundle"),
        (lambda b: (b / "bundle.json").write_text((b / "bundle.json").read_text()[:-40]), "not complete JSON"),
        (lambda b: (b / "bundle.json").write_text("[]"), "not a bundle's"),
        (lambda b: edit(b, seed=4), "edited after it was saved"),
        (lambda b: edit(b, pool=[{"name": "swapped"}]), "edited after it was saved"),
        (lambda b: edit(b, format=3), "format 3, this version reads 1 and 2"),
        (lambda b: shutil.rmtree(b), "not a bundle"),
    ],
)
def test_a_bundle_that_was_harmed_is_refused_with_the_reason(bundle, harm, said):
    harm(bundle)
    with pytest.raises(BadBundle, match=said):
        load(bundle)


def test_one_flipped_bit_is_noticed(bundle):
    path = bundle / "router.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadBundle, match="truncated or replaced"):
        load(bundle)


def test_two_bundles_cannot_be_mixed(bundle, router, tmp_path):
    federation = LocalFederation({"other": drawn_evaluations(seed=77)})
    family = FAMILIES[router.family]
    other = save(tmp_path / "other", family.learn(federation, POOL, family.settings()), ENCODER, PROVENANCE)
    shutil.copy(other / "router.safetensors", bundle / "router.safetensors")
    with pytest.raises(BadBundle, match="not the file this bundle was saved with"):
        load(bundle)


@dataclass(frozen=True, eq=False)
class Unregistered(KMeansRouter):
    """A router of a family that no registry has."""

    family: ClassVar[str] = "unregistered"


@dataclass(frozen=True, eq=False)
class Impostor(KMeansRouter):
    """Another class than the one that its family's name stands for."""

    family: ClassVar[str] = "kmeans"


@dataclass(frozen=True, eq=False)
class Forgetful(KMeansRouter):
    """A router whose arrays change when they are read back."""

    def arrays(self):
        return {**super().arrays(), "centres": np.random.default_rng().normal(size=self.centres.shape)}


def test_what_could_not_be_loaded_is_not_saved(tmp_path, monkeypatch):
    router = learned("kmeans")
    parts = (router.pool, router.centres, router.sums)
    for made, said in (
        (Unregistered(*parts), r"'unregistered': expected one of bayes.*package is not installed"),
        (Impostor(*parts), "Impostor: not saved, because 'kmeans' is the family of KMeansRouter"),
        (PersonalRouter(POOL, Unregistered(*parts), router, *WEIGHTS), r"cannot be read back .*'unregistered'"),
    ):
        with pytest.raises(BadInput, match=said):
            save(tmp_path / "bundle", made, ENCODER, PROVENANCE)
    monkeypatch.setitem(ROUTERS._loaded, "kmeans", Forgetful)
    with pytest.raises(BadInput, match="arrays change when they are read back: centres"):
        save(tmp_path / "bundle", Forgetful(*parts), ENCODER, PROVENANCE)
    assert not list(tmp_path.iterdir())


def test_a_bundle_of_a_family_that_is_not_installed_says_so(tmp_path):
    router = learned("kmeans")
    path = save(tmp_path / "bundle", router, ENCODER, PROVENANCE)
    sign_again(path, family="unregistered")
    with pytest.raises(BadBundle, match=r"'unregistered': expected one of bayes.*package is not installed"):
        load(path)


def test_halves_of_any_family_are_kept_in_a_personal_router(tmp_path):
    personal = PersonalRouter(POOL, learned("mlp", rounds=1, hidden=(4,)), learned("kmeans"), *WEIGHTS)
    again = load(save(tmp_path / "personal", personal, ENCODER, PROVENANCE)).router
    assert (again.federated.family, again.local.family) == ("mlp", "kmeans")
    assert np.array_equal([again.accuracy_weight, again.cost_weight], WEIGHTS)


@pytest.mark.parametrize(
    "edit", [{"family": ["x"]}, {"version": "x"}, {"encoder": {"name": "e", "dimension": 1e999, "normalised": True}}]
)
def test_a_manifest_with_values_of_other_types_is_refused_even_with_a_right_digest(tmp_path, edit):
    bundle = save(tmp_path / "bundle", from_rows([drawn_evaluations()]), ENCODER, PROVENANCE)
    sign_again(bundle, **edit)
    with pytest.raises(BadBundle, match="do not fit together"):
        load(bundle)


def test_a_bundle_is_not_saved_over_a_link_to_nowhere(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="already exists"):
        refuse_existing(tmp_path / "link")
