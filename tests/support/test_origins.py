"""Origins as the importers write them, read back into the model's names."""

from __future__ import annotations

from ingot.support.origins import ModelNode, layer_names, model_nodes


def test_nodes_of_an_onnx_file():
    origin = "node 'conv1' (Conv); node \"it's; (odd)\" (Add); node 'relu1' (Relu)"
    conv, add, relu = ModelNode("conv1", "Conv"), ModelNode("it's; (odd)", "Add"), "relu1"
    assert model_nodes(origin)[:2] == [conv, add] and model_nodes(origin)[2].name == relu
    assert layer_names(origin) == "conv1 + it's; (odd) + relu1"


def test_any_name_is_read_back():
    for name in ("a'b", 'a"b', "a'b\"c\\", "é\n; node 'x' (Add)"):
        assert model_nodes(f"node {name!r} (Relu)") == [ModelNode(name, "Relu")]


def test_nodes_of_a_module():
    origin = (
        "linear_1 (aten.linear.default), in module net.2 (Linear), /m/n.py:134: return f(x); y; "
        "relu (aten.relu.default), n.py:9: relu(x)"
    )
    linear, relu = model_nodes(origin)
    assert linear == ModelNode("linear_1", "aten.linear.default", "net.2")
    assert relu == ModelNode("relu", "aten.relu.default")
    assert layer_names(origin) == "net.2:linear_1 + relu"


def test_what_is_no_node_stays():
    assert model_nodes("tensor 'w'") == [] and layer_names("tensor 'w'") == "tensor 'w'"
