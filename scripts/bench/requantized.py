"""Writes a GGUF model's tensors of 4 and 5 bits once more in Q4_0, everything else as it is.

    python scripts/bench/requantized.py FILE.gguf INTO.gguf

The weights are as good as those that were there, less what rounding them again costs: for measuring, not for using.
"""

import sys
from pathlib import Path

import gguf
from gguf import GGMLQuantizationType as Format

CHANGED = (Format.Q4_1, Format.Q5_0, Format.Q5_1)
ALMOST_ALL_Q4_0 = gguf.LlamaFileType.MOSTLY_Q4_0


def requantize(file, into):
    source = gguf.GGUFReader(file)
    into.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(into, source.fields["general.architecture"].contents())
    copy_settings(source, writer)
    for tensor in source.tensors:
        if tensor.tensor_type in CHANGED:
            weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quants.quantize(weights, Format.Q4_0), raw_dtype=Format.Q4_0)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_settings(source, writer):
    """The writer has the header and the architecture already."""
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name == "general.file_type":
            writer.add_file_type(ALMOST_ALL_Q4_0)
            continue
        of_items = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=of_items)


if __name__ == "__main__":
    requantize(*map(Path, sys.argv[1:]))
