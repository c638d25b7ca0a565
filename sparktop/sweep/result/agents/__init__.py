"""The result of a level of agents: what people wait for, what the prefix cache saves, what ended."""
