"""The program's commands, a module each, with `add_arguments` and `run`.

Heavy imports wait until a command runs.
"""
