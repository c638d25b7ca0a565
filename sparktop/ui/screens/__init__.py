"""The full screens and dialogs of the user interface."""
