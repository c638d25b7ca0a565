"""The result of a level of users or agents: what people wait for, what the prefix cache saves, what ended."""
