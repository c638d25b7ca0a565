"""Events that leave the program: to a hook program and to a webhook."""
