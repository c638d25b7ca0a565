"""The program's commands, a module each: arguments and execution. Heavy imports wait until a command runs."""
