"""Generate prompts with an exact number of tokens, no two of them equal."""
