"""The configuration file: what it may say, how it is checked, kept and turned into what is watched."""
