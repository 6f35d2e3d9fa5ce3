"""A real Jupyter kernel for tests, spoken to as a front end does: run cells, press buttons."""

import os
import time
from pathlib import Path

from jupyter_client.manager import KernelManager

ROOT = Path(__file__).parents[2]


class Kernel:
    """A kernel whose widgets are followed: ``models`` maps identifiers to their present state."""

    def __enter__(self):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=str(ROOT))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.models = {}
        self.history = []  # (identifier, changed state), in order
        return self

    def __exit__(self, *error):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code, reader):
        """Run a cell as a front end does, with a reader or without; return its outputs."""
        return self._collect(self.client.execute(code, allow_stdin=reader))

    def send(self, model, data):
        """Send what the front end sends when a widget is used; return the outputs that follow."""
        message = self.client.session.msg("comm_msg", {"comm_id": model, "data": data})
        self.client.shell_channel.send(message)
        return self._collect(message["header"]["msg_id"])

    def find(self, kind, **state):
        """Return the identifiers of models of a kind (``"ButtonModel"``) that have this state."""
        return [
            name
            for name, model in self.models.items()
            if model.get("_model_name") == kind and state.items() <= model.items()
        ]

    def _collect(self, request, timeout=60):
        outputs = []
        end = time.monotonic() + timeout
        while True:
            message = self.client.get_iopub_msg(timeout=end - time.monotonic())
            kind, content = message["msg_type"], message["content"]
            if kind == "comm_open":
                self.models[content["comm_id"]] = dict(content["data"]["state"])
            elif kind == "comm_msg" and content["data"].get("method") == "update":
                self.models[content["comm_id"]].update(content["data"]["state"])
                self.history.append((content["comm_id"], content["data"]["state"]))
            elif message["parent_header"].get("msg_id") != request:
                continue
            elif kind in ("stream", "display_data", "execute_result", "error"):
                outputs.append((kind, content))
            elif kind == "status" and content["execution_state"] == "idle":
                return outputs
