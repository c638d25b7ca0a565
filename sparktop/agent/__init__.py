"""The node agent: tells a viewer elsewhere what this machine reads of itself, over HTTP or through ssh."""
