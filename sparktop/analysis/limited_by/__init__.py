"""What holds a server back: rules over its polls, its machines and its peers, without a single threshold."""

from sparktop.analysis.limited_by.evidence import Evidence, Look, Machine, MachineLook, Peer
from sparktop.analysis.limited_by.judge import limited_by

__all__ = ["Evidence", "Look", "Machine", "MachineLook", "Peer", "limited_by"]
