"""The networks are the published ones: checked against known numbers, and layer by layer against torch."""

import keyword

import pytest
from published_counts import PARAMETERS

from trainscale.worker.models import KINDS, MODELS, Graph, build, list_names

GIGA_MACS = {
    "alexnet": 0.714,
    "inceptionv3": 5.713,
    "inceptionv3-aux": 5.719,
    "resnet18": 1.814,
    "resnet50": 4.089,
    "resnet152": 11.514,
    "vgg16": 15.470,
    "mnist": 0.014,
    "inception-bn-28-small": 0.204,
    "inception-bn": 2.033,
}

MAPS = [
    ("alexnet", "pool1", (64, 27, 27)),
    ("alexnet", "pool3", (256, 6, 6)),
    ("alexnet", "flatten1", (9216,)),
    ("inceptionv3", "stem.pool2", (192, 35, 35)),
    ("inceptionv3", "a3.concat1", (288, 35, 35)),
    ("inceptionv3", "b4.concat1", (768, 17, 17)),
    ("inceptionv3", "reduce_b.concat1", (1280, 8, 8)),
    ("inceptionv3", "c2.concat1", (2048, 8, 8)),
    ("inceptionv3-aux", "aux.pool1", (768, 5, 5)),
    ("resnet50", "stem.pool1", (64, 56, 56)),
    ("resnet50", "stage1.block3.relu3", (256, 56, 56)),
    ("resnet50", "stage4.block3.relu3", (2048, 7, 7)),
    ("resnet18", "stage4.block2.relu2", (512, 7, 7)),
    ("vgg16", "stage5.pool1", (512, 7, 7)),
    ("mnist", "pool2", (64, 7, 7)),
    ("inception-bn-28-small", "in5b.concat1", (336, 7, 7)),
    ("inception-bn", "stem.pool2", (192, 28, 28)),
    ("inception-bn", "in5b.concat1", (1024, 7, 7)),
    ("resnet50-cifar", "stem.pool1", (64, 7, 7)),
    ("resnet50-cifar", "stage4.block3.add1", (2048, 1, 1)),
]


@pytest.fixture(params=list_names())
def graph(request: pytest.FixtureRequest) -> Graph:
    return build(request.param)


def test_parameter_counts_are_the_published_ones(graph: Graph) -> None:
    assert graph.parameter_count == PARAMETERS[graph.name]


@pytest.mark.parametrize(("name", "giga_macs"), GIGA_MACS.items())
def test_forward_multiply_adds_are_the_published_ones(name: str, giga_macs: float) -> None:
    assert round(build(name).macs / 1e9, 3) == giga_macs


@pytest.mark.parametrize(("name", "layer", "shape"), MAPS)
def test_known_intermediate_maps(name: str, layer: str, shape: tuple[int, ...]) -> None:
    assert build(name).layer(layer).shape == shape


def test_every_graph_is_well_formed(graph: Graph) -> None:
    """Layers come after what they use, all lead to a head, and adapters can name them and read their options."""
    seen: set[str] = set()
    for layer in graph.layers:
        assert set(layer.inputs) <= seen, layer
        seen.add(layer.name)
        assert layer.kind in KINDS
        for key in ("kernel", "stride", "padding"):
            value = layer.options.get(key, (0, 0))
            assert isinstance(value, tuple), (layer.name, key)
            assert len(value) == 2, (layer.name, key)
    assert [layer.name for layer in graph.layers if not layer.inputs] == ["input"]
    assert graph.layers[0].shape == graph.input_shape

    used = {name for layer in graph.layers for name in layer.inputs}
    assert seen - used == {head.layer for head in graph.heads}
    identifiers = [layer.identifier for layer in graph.layers]
    assert len(set(identifiers)) == len(identifiers)
    assert all(text.isidentifier() and not keyword.iskeyword(text) for text in identifiers)

    assert graph.heads[0].loss_weight == 1.0
    assert all(graph.layer(head.layer).shape == (graph.classes,) for head in graph.heads)
    assert all(graph.layer(head.layer).kind == "dense" for head in graph.heads)


def test_the_catalog_uses_every_layer_kind_and_only_the_auxiliary_inception_has_a_second_head() -> None:
    assert {layer.kind for name in list_names() for layer in build(name).layers} == set(KINDS)
    weights = {name: [head.loss_weight for head in build(name).heads] for name in list_names()}
    assert weights.pop("inceptionv3-aux") == [1.0, 0.4]
    assert all(value == [1.0] for value in weights.values())


def test_batch_norm_eps_is_inceptions_own_only_where_it_should_be(graph: Graph) -> None:
    own = {"inceptionv3": 1e-3, "inceptionv3-aux": 1e-3, "resnet50-cifar": 1e-3}
    values = {layer.options["eps"] for layer in graph.layers if layer.kind == "batch_norm"}
    assert values <= {own.get(graph.name, 1e-5)}


@pytest.mark.framework
@pytest.mark.parametrize("extra", [0, 37])
@pytest.mark.parametrize("name", list_names())
def test_torch_computes_the_shapes_that_were_inferred(name: str, extra: int) -> None:
    import torch
    import torch_reference

    graph = build(name, image_size=MODELS[name].image_size + extra)
    parameters = {item.name: torch.empty(item.shape, device="meta") for item in graph.parameters()}
    outputs = torch_reference.run(graph, torch.empty(2, *graph.input_shape, device="meta"), parameters)
    assert {name: tuple(output.shape[1:]) for name, output in outputs.items()} == {
        layer.name: layer.shape for layer in graph.layers
    }


@pytest.mark.parametrize("name", list_names())
def test_more_classes_add_only_to_the_heads(name: str) -> None:
    few, many = build(name, classes=10), build(name, classes=11)
    inputs = sum(few.input_shapes(few.layer(head.layer))[0][0] + 1 for head in few.heads)
    assert many.parameter_count - few.parameter_count == inputs


@pytest.mark.parametrize("name", ["resnet50", "inceptionv3", "inception-bn", "resnet50-cifar"])
def test_networks_that_end_in_global_pooling_keep_their_parameters_at_any_image_size(name: str) -> None:
    default, larger = build(name), build(name, image_size=MODELS[name].image_size + 32)
    assert larger.parameter_count == default.parameter_count
    assert larger.macs > default.macs


def test_the_dense_layers_of_the_plain_chains_follow_the_image_size() -> None:
    # At 160 AlexNet's last map is 4×4 instead of 6×6, and only the first dense layer sees it.
    smaller = build("alexnet", image_size=160)
    assert smaller.layer("pool3").shape == (256, 4, 4)
    assert build("alexnet").parameter_count - smaller.parameter_count == (36 - 16) * 256 * 4096


def test_residual_networks_put_the_stride_on_the_3x3() -> None:
    graph = build("resnet50")
    assert graph.layer("stage2.block1.conv1").options["stride"] == (1, 1)
    assert graph.layer("stage2.block1.conv2").options["stride"] == (2, 2)
