"""Reading captures: files into frames, frames into UDP datagrams. Knows nothing of RDMA."""

from softhca.tools.capture.file import read_frames
from softhca.tools.capture.frame import CaptureError, Frame
from softhca.tools.capture.link_layer import UnsupportedLinkError, find_ip
from softhca.tools.capture.udp import Outcome, UdpFinder, UdpPacket

__all__ = [
    "CaptureError",
    "Frame",
    "Outcome",
    "UdpFinder",
    "UdpPacket",
    "UnsupportedLinkError",
    "find_ip",
    "read_frames",
]
