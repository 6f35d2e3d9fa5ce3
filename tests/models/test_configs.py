import dataclasses

import pytest

from lsdl_lib.models import ConvNetConfig, GPTConfig, MLPConfig, ResNetConfig

WRONG = [
    (MLPConfig, {"inputs": 0}, "MLPConfig.inputs is 0"),
    (MLPConfig, {"classes": 2.0}, "MLPConfig.classes is 2.0"),
    (MLPConfig, {"classes": True}, "MLPConfig.classes is True"),
    (MLPConfig, {"hidden": [8]}, r"MLPConfig.hidden is \[8\]; give a tuple"),
    (MLPConfig, {"hidden": (8, -1)}, r"MLPConfig.hidden is \(8, -1\)"),
    (
        MLPConfig,
        {"norm": "layer"},
        "MLPConfig.norm is 'layer'; choose one of 'none', 'batch', 'group'",
    ),
    (
        MLPConfig,
        {"norm": "group", "groups": 3},
        "MLPConfig.groups is 3, which does not divide the 128",
    ),
    (ConvNetConfig, {"dims": 3}, "ConvNetConfig.dims is 3; choose one of 1, 2"),
    (ConvNetConfig, {"channels": 0}, "ConvNetConfig.channels is 0"),
    (ConvNetConfig, {"classes": -2}, "ConvNetConfig.classes is -2"),
    (ConvNetConfig, {"kernel": 4}, "ConvNetConfig.kernel is 4; give an odd number"),
    (ConvNetConfig, {"widths": ()}, r"ConvNetConfig.widths is \(\)"),
    (ConvNetConfig, {"widths": (8, "16")}, r"ConvNetConfig.widths is \(8, '16'\)"),
    (ConvNetConfig, {"norm": "none"}, "ConvNetConfig.norm is 'none'"),
    (
        ConvNetConfig,
        {"norm": "group", "widths": (8, 12)},
        "groups is 8, which does not divide the 12",
    ),
    (ConvNetConfig, {"groups": 0}, "ConvNetConfig.groups is 0"),
    (ResNetConfig, {"depth": 20}, "ResNetConfig.depth is 20; choose one of 18, 34, 50"),
    (
        ResNetConfig,
        {"stem": "tiny"},
        "ResNetConfig.stem is 'tiny'; choose one of 'cifar', 'imagenet'",
    ),
    (ResNetConfig, {"norm": "layer"}, "ResNetConfig.norm is 'layer'"),
    (ResNetConfig, {"width": 16, "norm": "group"}, "groups is 32, which does not divide the 16"),
    (ResNetConfig, {"channels": None}, "ResNetConfig.channels is None"),
    (GPTConfig, {"vocabulary": 0}, "GPTConfig.vocabulary is 0"),
    (GPTConfig, {"context": -1}, "GPTConfig.context is -1"),
    (GPTConfig, {"layers": 0}, "GPTConfig.layers is 0"),
    (GPTConfig, {"heads": 5}, "GPTConfig.heads is 5, which does not divide the width 64"),
    (GPTConfig, {"tied": "yes"}, "GPTConfig.tied is 'yes'; choose one of True, False"),
]


@pytest.mark.parametrize(("config", "fields", "message"), WRONG)
def test_the_error_names_the_field_and_the_value(config, fields, message):
    with pytest.raises(ValueError, match=message):
        config(**fields)


@pytest.mark.parametrize("config", [ConvNetConfig, GPTConfig, MLPConfig, ResNetConfig])
def test_configs_are_frozen_and_hashable(config):
    assert hash(config()) == hash(config())
    field = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config(), field, 1)
