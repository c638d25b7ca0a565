"""make_model.py tiny|mid DIR: write a small Llama's configuration and train a tokenizer for it.

The weights are vLLM's dummy ones. Runs in the stack's own environment (scripts/real_stack.sh), which has
transformers and tokenizers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

SIZES = {
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "mid": {
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 10,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
    },
}
VOCABULARY = 2048
BEGIN, END = "<s>", "</s>"
TEXTS = Path("/usr/share/common-licenses")


def make_tokenizer(directory: str) -> None:
    """Train a byte-pair tokenizer on the licence texts that every Debian has; save it in `directory`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [path.read_text(errors="ignore") for path in TEXTS.glob("*") if path.is_file()]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts or ["the quick brown fox jumps over the lazy dog"] * 100, trainer)
    special = {"bos_token": BEGIN, "eos_token": END}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    fast.save_pretrained(directory)


def make_config(size: str, directory: str) -> None:
    """Write the model's configuration to `directory`; its weights are vLLM's dummy ones."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        head_dim=64,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        **SIZES[size],
    )
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(directory)


if __name__ == "__main__":
    make_tokenizer(sys.argv[2])
    make_config(sys.argv[1], sys.argv[2])
