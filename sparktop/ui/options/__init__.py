"""The options menu's content: settings of the screen, and settings of the configuration file."""
