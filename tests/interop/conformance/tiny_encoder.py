"""A cross-encoder of one tiny layer with random weights, in Hugging Face's layout: it re-ranks in no time, and for no reason."""

import json
import random

from tiny_model import safetensors

HIDDEN, HEADS, MLP, CONTEXT = 16, 2, 32, 512
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TOKENS = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]


def tokenizer():
    """WordPiece of single letters, for pairs of texts."""
    added = [{"id": at, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for at, text in enumerate(SPECIAL)]

    def special(name, kind):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)]
    template = {"type": "TemplateProcessing", "single": single, "pair": [*single, text("B", 1), special("[SEP]", 1)],
                "special_tokens": {name: {"id": name, "ids": [SPECIAL.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
             "vocab": {token: at for at, token in enumerate(TOKENS)}}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": template,
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "model": model}


def shapes():
    """Names of tensors and their sides."""
    yield "bert.embeddings.word_embeddings.weight", (len(TOKENS), HIDDEN)
    yield "bert.embeddings.position_embeddings.weight", (CONTEXT, HIDDEN)
    yield "bert.embeddings.token_type_embeddings.weight", (2, HIDDEN)
    layer = "bert.encoder.layer.0"
    norms = ["bert.embeddings.LayerNorm", f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for norm in norms:
        yield f"{norm}.weight", (HIDDEN,)
        yield f"{norm}.bias", (HIDDEN,)
    dense = {f"{layer}.attention.self.{name}": (HIDDEN, HIDDEN) for name in ("query", "key", "value")}
    dense |= {f"{layer}.attention.output.dense": (HIDDEN, HIDDEN), f"{layer}.intermediate.dense": (MLP, HIDDEN),
              f"{layer}.output.dense": (HIDDEN, MLP), "bert.pooler.dense": (HIDDEN, HIDDEN), "classifier": (1, HIDDEN)}
    for name, sides in dense.items():
        yield f"{name}.weight", sides
        yield f"{name}.bias", sides[:1]


def weights():
    draw = random.Random(11)

    def numbers(name, _, count):
        return [1.0] * count if name.endswith("LayerNorm.weight") else [draw.gauss(0, 0.3) for _ in range(count)]

    return safetensors(shapes(), numbers)


def write(folder):
    """Puts the model into `folder`."""
    folder.mkdir(parents=True)
    config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_size": HIDDEN, "num_hidden_layers": 1,
              "num_attention_heads": HEADS, "intermediate_size": MLP, "vocab_size": len(TOKENS), "max_position_embeddings": CONTEXT,
              "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "num_labels": 1, "id2label": {"0": "LABEL_0"},
              "label2id": {"LABEL_0": 0}, "pad_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "model.safetensors").write_bytes(weights())
