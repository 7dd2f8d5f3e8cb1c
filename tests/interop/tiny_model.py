"""A Llama of two tiny layers with random weights, in Hugging Face's layout: made by a test, trained in seconds, and good for nothing else."""

import json
import random
import struct
from array import array

HIDDEN, LAYERS, HEADS, KEYS, MLP, CONTEXT = 32, 2, 4, 2, 64, 512
CONTROLS = ["<|im_start|>", "<|im_end|>"]


def letters():
    """A letter for each byte, as GPT-2's tokenizer writes them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in plain)
    named = {byte: chr(byte) for byte in plain} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    return [named[byte] for byte in range(256)]


def tokenizer():
    tokens = CONTROLS + letters()
    added = [{"id": at, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for at, text in enumerate(CONTROLS)]
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "ignore_merges": False, "vocab": {text: at for at, text in enumerate(tokens)}, "merges": []}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": split,
            "post_processor": None, "decoder": split, "model": model}


def shapes():
    """Names of tensors and their sides; those with one side are norms."""
    head = HIDDEN // HEADS
    yield "model.embed_tokens.weight", (len(CONTROLS) + 256, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for layer in range(LAYERS):
        of = f"model.layers.{layer}"
        yield f"{of}.input_layernorm.weight", (HIDDEN,)
        yield f"{of}.post_attention_layernorm.weight", (HIDDEN,)
        for name, rows in (("q_proj", HIDDEN), ("k_proj", KEYS * head), ("v_proj", KEYS * head)):
            yield f"{of}.self_attn.{name}.weight", (rows, HIDDEN)
        yield f"{of}.self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        for name in ("gate_proj", "up_proj"):
            yield f"{of}.mlp.{name}.weight", (MLP, HIDDEN)
        yield f"{of}.mlp.down_proj.weight", (HIDDEN, MLP)


def weights():
    """The bytes of a safetensors file: the length of a header, the header, the numbers."""
    draw, header, data = random.Random(7), {}, b""
    for name, sides in shapes():
        count = sides[0] * (sides[1] if len(sides) == 2 else 1)
        numbers = array("f", ([1.0] * count if len(sides) == 1 else [draw.gauss(0, 0.15) for _ in range(count)]))
        header[name] = {"dtype": "F32", "shape": list(sides), "data_offsets": [len(data), len(data) + 4 * count]}
        data += numbers.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write(folder):
    """Puts the model into `folder`."""
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "intermediate_size": MLP, "vocab_size": len(CONTROLS) + 256,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": CONTEXT, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": CONTROLS[1]}))
    (folder / "model.safetensors").write_bytes(weights())
