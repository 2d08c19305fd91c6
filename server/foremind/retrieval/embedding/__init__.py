"""Text to vectors: model manifests, conversion, one ONNX session behind one bounded queue."""

import os

# ONNX Runtime queues reports to Microsoft on what it runs on, in the home directory, unless this is
# set before it is imported; its `disable_telemetry_events` comes too late.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
