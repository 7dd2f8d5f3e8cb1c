"""Makes an ONNX file of a BERT encoder, or of a cross-encoder on one, from its config.json and model.safetensors: the peer of
scripts/bench/models.py. The operators are the fused ones that ONNX Runtime's own optimizer puts in the place of BERT's parts (attention, skip
and layer norm, bias and GELU), so that it computes as fast as it can. All in fp32.

    python scripts/bench/onnx_encoder.py FOLDER FILE.onnx
"""

import json
import struct
import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
TYPES = {"F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64}


def read_safetensors(path):
    """Name to array."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    found = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        found[name] = numpy.frombuffer(data[begin:end], dtype=TYPES[about["dtype"]]).reshape(about["shape"])
    return found


def write_safetensors(path, tensors):
    """Arrays of fp32 by name."""
    header, parts, offset = {}, [], 0
    for name, array in tensors.items():
        part = numpy.ascontiguousarray(array, dtype=numpy.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + len(part)]}
        parts.append(part)
        offset += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


class Graph:
    def __init__(self, tensors):
        self.tensors, self.nodes, self.constants, self.count = tensors, [], [], 0

    def constant(self, array, kind=numpy.float32):
        self.count += 1
        name = f"constant_{self.count}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(array, dtype=kind), name))
        return name

    def weight(self, name):
        return self.constant(self.tensors[name])

    def transposed(self, name):
        return self.constant(self.tensors[name].T)

    def node(self, operator, inputs, domain="", outputs=1, **attributes):
        self.count += 1
        names = [f"value_{self.count}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[0]

    def layer(self, prefix, hidden, mask, heads, epsilon):
        def both(names, what):
            return numpy.concatenate([self.tensors[f"{prefix}.attention.self.{name}.{what}"].T for name in names], axis=-1)
        three = ("query", "key", "value")
        attended = self.node("Attention", [hidden, self.constant(both(three, "weight")), self.constant(both(three, "bias")), mask],
                             MICROSOFT, num_heads=heads)
        hidden = self.beside(attended, hidden, f"{prefix}.attention.output", epsilon)
        inner = self.node("MatMul", [hidden, self.transposed(f"{prefix}.intermediate.dense.weight")])
        inner = self.node("BiasGelu", [inner, self.weight(f"{prefix}.intermediate.dense.bias")], MICROSOFT)
        return self.beside(inner, hidden, f"{prefix}.output", epsilon)

    def beside(self, value, skip, prefix, epsilon):
        """A linear layer, the sum with what went around it, and the normalization."""
        dense = self.node("MatMul", [value, self.transposed(f"{prefix}.dense.weight")])
        return self.node("SkipLayerNormalization",
                         [dense, skip, self.weight(f"{prefix}.LayerNorm.weight"), self.weight(f"{prefix}.LayerNorm.bias"),
                          self.weight(f"{prefix}.dense.bias")], MICROSOFT, epsilon=epsilon)


def build(folder, file):
    """Inputs: input_ids, attention_mask and token_type_ids, `[texts, tokens]`. Output: the vectors of the tokens, or a score a pair."""
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "bert" or config.get("hidden_act") != "gelu":
        raise ValueError(f"{folder} is no BERT with GELU, which is what is made here")
    tensors = read_safetensors(folder / "model.safetensors")
    scores = "classifier.weight" in tensors
    body = "bert." if scores else ""
    epsilon = config["layer_norm_eps"]
    graph = Graph(tensors)
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (graph.node("Cast", [name], to=TensorProto.INT32) for name in names)
    embeddings = [graph.weight(f"{body}embeddings.{name}.weight") for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")]
    norm = [graph.weight(f"{body}embeddings.LayerNorm.{name}") for name in ("weight", "bias")]
    hidden = graph.node("EmbedLayerNormalization", [ids, types, *embeddings, *norm], MICROSOFT, outputs=2, epsilon=epsilon)
    for number in range(config["num_hidden_layers"]):
        hidden = graph.layer(f"{body}encoder.layer.{number}", hidden, mask, config["num_attention_heads"], epsilon)
    shape = ["texts", "tokens", config["hidden_size"]]
    if scores:
        first = graph.node("Gather", [hidden, graph.constant(numpy.array(0), numpy.int64)], axis=1)
        pooled = graph.node("Gemm", [first, graph.weight("bert.pooler.dense.weight"), graph.weight("bert.pooler.dense.bias")], transB=1)
        pooled = graph.node("Tanh", [pooled])
        hidden = graph.node("Gemm", [pooled, graph.weight("classifier.weight"), graph.weight("classifier.bias")], transB=1)
        shape = ["texts", tensors["classifier.weight"].shape[0]]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in names]
    output = helper.make_tensor_value_info(hidden, TensorProto.FLOAT, shape)
    made = helper.make_graph(graph.nodes, "encoder", inputs, [output], initializer=graph.constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=8), str(file))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build(sys.argv[1], sys.argv[2])
