"""Makes a model folder that MLX-LM loads out of a GGUF file of the llama architecture.

Weights are dequantized to float32, with which MLX is three times as fast on a CPU as with float16. llama.cpp
interleaves the two halves of every rotary head in its query and key
weights; they are put back side by side, as the Transformers layout has them (llama.cpp ``convert_hf_to_gguf.py``,
``LlamaModel.permute``). The tokenizer is built from the vocabulary and merges that the file carries.

Needs gguf, safetensors and tokenizers, which come with the extra ``mlx``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any  # what a GGUF file says of itself: numbers, texts and lists by name

import numpy as np
from numpy.typing import NDArray

WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL_TOKEN = 3
"""Token type of control tokens in a GGUF vocabulary (llama.cpp ``llama_token_type``)."""


def mlx_folder(source: Path, folder: Path) -> Path:
    """Write the folder, ``config.json`` last, and return it.

    Args:
        source: a GGUF file: llama architecture, tied embeddings, byte-level BPE.
        folder: where to write; made if it is missing.
    """
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import save_file

    reader = GGUFReader(source)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name in WHOLE:
            weights[WHOLE[tensor.name]] = values
            continue
        _, layer, part, _ = tensor.name.split(".")
        if part in heads:
            values = halves_side_by_side(values, heads[part])
        weights[f"model.layers.{layer}.{PARTS[part]}.weight"] = np.ascontiguousarray(values)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(facts, folder)
    (folder / "config.json").write_text(json.dumps(config_of(facts)))
    return folder


def halves_side_by_side(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo llama.cpp's order of rotary rows: (heads, pair, half) becomes (heads, half, pair)."""
    pairs = rows.shape[0] // heads // 2
    return rows.reshape(heads, pairs, 2, rows.shape[1]).transpose(0, 2, 1, 3).reshape(rows.shape)


def config_of(facts: dict[str, Any]) -> dict[str, Any]:
    """The ``config.json`` of a llama model with these GGUF facts."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": float(facts["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(facts["llama.rope.freq_base"]),
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
    }


def write_tokenizer(facts: dict[str, Any], folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokens[facts["tokenizer.ggml.eos_token_id"]]
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": end,
                "pad_token": end,
                "chat_template": facts["tokenizer.chat_template"],
                "model_max_length": facts["llama.context_length"],
            }
        )
    )
