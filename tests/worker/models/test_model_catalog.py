"""Finding a network by the name a person writes, and building it at other sizes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainscale
from trainscale.worker.models import MODELS, ShapeError, build, list_names, resolve

SPELLINGS = {
    "inceptionv3": ("Inceptionv3", "Inception-v3", "Inception_V3", "Inception v3", "inception3"),
    "inceptionv3-aux": ("InceptionV3-Aux",),
    "alexnet": ("Alexnet", "AlexNet"),
    "resnet152": ("resnet", "Resnet", "ResNet-152"),
    "resnet50": ("resnet-50", "resnet50_v1.5"),
    "vgg16": ("VGG-16",),
    "mnist": ("deepMNIST",),
    "inception-bn-28-small": ("inception-bn-28-small",),
    "inception-bn": ("Inception_BN",),
    "resnet50-cifar": ("resnet50_cifar",),
}


@pytest.mark.parametrize(
    ("written", "meant"), [(written, meant) for meant, each in SPELLINGS.items() for written in each]
)
def test_spelling_does_not_matter(written: str, meant: str) -> None:
    info = resolve(written)
    assert info is not None
    assert info.name == meant


@pytest.mark.parametrize("written", ["", "-", "resnet51", "transformer"])
def test_unknown_names_resolve_to_nothing(written: str) -> None:
    assert resolve(written) is None


def test_no_two_models_share_a_spelling() -> None:
    spellings: dict[str, str] = {}
    for info in MODELS.values():
        for text in (info.name, info.title, *info.aliases):
            folded = "".join(letter for letter in text.lower() if letter.isalnum())
            assert spellings.setdefault(folded, info.name) == info.name


def test_building_an_unknown_model_names_the_nearest_and_all_others() -> None:
    with pytest.raises(ValueError, match=r"no model 'resnet51' \(did you mean 'resnet\d+'\?\).*alexnet, inceptionv3"):
        build("resnet51")


def test_every_model_is_described_and_its_graph_has_its_name_and_sizes() -> None:
    for name, info in MODELS.items():
        assert info.title
        assert info.description
        assert "\n" not in info.description
        graph = build(name)
        assert graph.name == name
        assert graph.input_shape == (info.channels, info.image_size, info.image_size)
        assert (graph.image_size, graph.classes) == (info.image_size, info.classes)


def test_a_graph_is_built_once() -> None:
    assert build("resnet50") is build("ResNet-50", image_size=224)


@pytest.mark.parametrize(
    ("name", "least"),
    [("alexnet", 63), ("inceptionv3", 75), ("inceptionv3-aux", 299), ("vgg16", 32), ("mnist", 4)],
)
def test_too_small_an_image_says_which_size_would_do(name: str, least: int) -> None:
    with pytest.raises(ShapeError, match=rf"too small.*--image-size\. .* needs at least {least}\."):
        build(name, image_size=3)
    assert build(name, image_size=least).image_size == least


@pytest.mark.parametrize("name", list_names())
def test_what_fits_one_size_fits_the_sizes_above(name: str) -> None:
    # The message above relies on it; odd sizes are where parallel branches could drift apart.
    fitted = False
    for size in range(1, MODELS[name].image_size + 20, 1 if MODELS[name].image_size < 100 else 7):
        try:
            build(name, image_size=size)
        except ShapeError:
            assert not fitted, size
        else:
            fitted = True
    assert fitted


@pytest.mark.parametrize("sizes", [{"image_size": 0}, {"classes": 0}])
def test_zero_is_not_taken_for_the_default(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        build("mnist", **sizes)


@pytest.mark.processes
def test_importing_the_package_loads_no_numpy_no_framework_and_no_network() -> None:
    program = (
        "import sys, trainscale.worker.models as m; m.list_names(); m.resolve('alexnet');"
        "print([n for n in ('numpy', 'torch', m.__name__ + '.resnet') if n in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(trainscale.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
