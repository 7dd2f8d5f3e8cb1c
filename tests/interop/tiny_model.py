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


def safetensors(shapes, numbers):
    """The bytes of a safetensors file: the length of a header, the header, the numbers that `numbers(name, sides, count)` gives."""
    header, data = {}, b""
    for name, sides in shapes:
        count = sides[0] * (sides[1] if len(sides) == 2 else 1)
        header[name] = {"dtype": "F32", "shape": list(sides), "data_offsets": [len(data), len(data) + 4 * count]}
        data += array("f", numbers(name, sides, count)).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def weights():
    draw = random.Random(7)
    return safetensors(shapes(), lambda _, sides, count: [1.0] * count if len(sides) == 1 else [draw.gauss(0, 0.15) for _ in range(count)])


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


def gguf_name(name):
    """What llama.cpp calls a tensor."""
    for long, short in (("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("model.layers.", "blk."),
                        ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.o_proj", "attn_output"),
                        ("self_attn.", "attn_"), ("mlp.", "ffn_"), ("_proj", "")):
        name = name.replace(long, short)
    return name


U32, I32, F32, TEXT, LIST = 4, 5, 6, 8, 9


def gguf_value(kind, value):
    if kind == TEXT:
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw
    if kind == LIST:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(gguf_value(of, item) for item in items)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f"}[kind], value)


def gguf():
    """The same network as one file of llama.cpp (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). A vocabulary without a
    merge is none to it: "in" is one token."""
    tokens = [*CONTROLS, *letters(), "in"]
    head = HIDDEN // HEADS
    pairs = [("general.architecture", TEXT, "llama"), ("llama.block_count", U32, LAYERS), ("llama.context_length", U32, CONTEXT),
             ("llama.embedding_length", U32, HIDDEN), ("llama.feed_forward_length", U32, MLP), ("llama.attention.head_count", U32, HEADS),
             ("llama.attention.head_count_kv", U32, KEYS), ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
             ("llama.rope.freq_base", F32, 10000.0), ("llama.rope.dimension_count", U32, head), ("llama.vocab_size", U32, len(tokens)),
             ("tokenizer.ggml.model", TEXT, "gpt2"), ("tokenizer.ggml.pre", TEXT, "default"), ("tokenizer.ggml.tokens", LIST, (TEXT, tokens)),
             ("tokenizer.ggml.token_type", LIST, (I32, [3] * len(CONTROLS) + [1] * (len(tokens) - len(CONTROLS)))),
             ("tokenizer.ggml.merges", LIST, (TEXT, ["i n"])), ("tokenizer.ggml.eos_token_id", U32, 1)]
    draw, listed, data = random.Random(7), b"", b""
    for name, sides in shapes():
        sides = (len(tokens), HIDDEN) if "embed" in name else sides
        count = sides[0] * (sides[1] if len(sides) == 2 else 1)
        # Sides stand the other way round here; 0 are 32-bit floats.
        listed += gguf_value(TEXT, gguf_name(name)) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *reversed(sides), 0, len(data))
        data += array("f", ([1.0] * count if len(sides) == 1 else [draw.gauss(0, 0.15) for _ in range(count)])).tobytes()
        data += bytes(-len(data) % 32)
    start = b"GGUF" + struct.pack("<IQQ", 3, sum(1 for _ in shapes()), len(pairs))
    start += b"".join(gguf_value(TEXT, key) + struct.pack("<I", kind) + gguf_value(kind, value) for key, kind, value in pairs) + listed
    return start + bytes(-len(start) % 32) + data


def write_gguf(folder):
    """Puts the model into `folder` as a file that the local runtime chats with, too."""
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes(gguf())
